// libraries: remote egress policy
// parser: src/egress/allow_list.cpp src/io/address.cpp src/cli/remote/address.cpp
//
// Addresses as people, clients and sandboxes write them: the entries of an egress list and a target
// that is asked of it (one a line, the target the last), an address to listen on, a server's URL.
#include "base/error.h"
#include "cli/remote/address.h"
#include "egress/allow_list.h"
#include "io/address.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file
using egress::AllowList;

void check_list(std::string_view text) {
  std::vector<std::string> entries;
  std::size_t line = text.find('\n');
  for (; line != text.npos && entries.size() < 16; line = text.find('\n')) {
    entries.emplace_back(text.substr(0, line));
    text.remove_prefix(line + 1);
  }
  const auto authority = policy::canonical_authority(text);
  const auto list = AllowList::parse(entries);
  if (!list.has_value() || !authority.has_value()) return;
  VERIFY(list->empty() == entries.empty());
  const egress::Destination target{authority->host, authority->port.value_or(80)};
  VERIFY(policy::canonical_authority(target.text())->host == target.host);
  const auto answer = list->allows(target);
  if (list->empty()) VERIFY(answer == AllowList::Answer::kNo);
  if (answer == AllowList::Answer::kAnyAddress)
    VERIFY(egress::is_localhost(target.host) || target.host.is_address());
  // What is an address reaches itself alone, by an entry of its own.
  if (target.host.is_address()) VERIFY(answer != AllowList::Answer::kPublic);
  (void)list->names_loopback();
}

void check_listen(const std::string& text) {
  const auto address = io::parse_address(text);
  if (!address.has_value()) return;
  const auto again = io::parse_address(address->text());
  VERIFY(again.has_value() && again->text() == address->text());
  VERIFY(again->port() == address->port() && again->family() == address->family());
}

void check_server(std::string_view url) {
  const auto address = cli::parse_server_address(url);
  if (!address.has_value()) return;
  VERIFY(address->port != 0 && !address->host.empty());
  VERIFY(url.contains(address->authority) && address->authority.contains(address->host));
  VERIFY(address->authority.find_first_of("/?#@ \r\n") == std::string::npos);
  if (cli::is_loopback(*address)) VERIFY(!address->host.contains("example"));
  const std::string target = cli::target_of("/v1", {{"a", std::string(url)}, {"b", ""}});
  VERIFY(target.starts_with("/v1?a=") && target.find_first_of(" &#\r\n") == std::string::npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_list(text);
  check_listen(std::string(text));
  check_server(text);
  return 0;
}
