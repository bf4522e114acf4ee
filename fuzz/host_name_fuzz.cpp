// libraries: policy base
// parser: src/policy/host_name.cpp src/policy/host_pattern.cpp
//
// Hosts, authorities and patterns of hosts: each line of the input, and all of it.
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "policy/host_name.h"
#include "policy/ip_class.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file
using namespace caisson::policy;

// Whether the C library takes the text for an address, of whatever spelling, without asking
// anybody.
bool is_an_address_elsewhere(const std::string& text) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (::getaddrinfo(text.c_str(), nullptr, &hints, &found) != 0) return false;
  ::freeaddrinfo(found);
  return true;
}

void check_canonical(const Host& host) {
  VERIFY(canonical_host(host.text()).value() == host);
  VERIFY(is_an_address_elsewhere(host.name) == host.is_address());
  if (host.is_address()) {
    VERIFY(host.name == host.address.to_string());
    return;
  }
  VERIFY(!host.name.empty() && host.name.size() <= 253 && host.text() == host.name);
  VERIFY(host.name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-_.") ==
         std::string::npos);
  VERIFY(("." + host.name + ".").find("..") == std::string::npos);
  // Letter case and a dot at the end change nothing.
  std::string shouted = host.name + ".";
  for (char& c : shouted)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  VERIFY(canonical_host(shouted).value() == host);
}

void check_host(std::string_view text) {
  const auto host = canonical_host(text);
  if (!host) {
    VERIFY(!host.error().message().empty());
    return;
  }
  check_canonical(*host);
  for (const char c : text)
    VERIFY(static_cast<unsigned char>(c) > 0x20 && c != 0x7f &&
           std::string_view("%\\/@#?").find(c) == std::string_view::npos);
  // A host alone is an authority without a port, and with one the same host.
  const auto alone = canonical_authority(text);
  VERIFY(alone.has_value() && alone->host == *host && !alone->port);
  const auto with_port = canonical_authority(std::string(text) + ":65535");
  VERIFY(with_port.has_value() && with_port->host == *host && with_port->port == 65535);
  VERIFY(!canonical_authority(std::string(text) + ":").has_value());
  VERIFY(HostPattern::parse(text)->matches(*host));
}

void check_authority(std::string_view text) {
  const auto authority = canonical_authority(text);
  if (!authority) return;
  check_canonical(authority->host);
  VERIFY(authority->port != 0);
  VERIFY(canonical_authority(authority->text()).value() == *authority);
}

void check_pattern(std::string_view text) {
  const auto pattern = HostPattern::parse(text);
  if (!pattern) {
    VERIFY(!pattern.error().message().empty());
    return;
  }
  VERIFY(HostPattern::parse(pattern->text()).value() == *pattern);
  const bool two_stars = pattern->text().starts_with("**.");
  VERIFY(pattern->matches(pattern->host()) == (pattern->is_exact() || two_stars));
  if (pattern->is_address()) {
    VERIFY(pattern->is_exact());
    return;
  }
  const auto below = canonical_host("a." + pattern->host().name);
  if (below) VERIFY(pattern->matches(*below) != pattern->is_exact());
  const auto beside = canonical_host("a" + pattern->host().name);
  if (beside) VERIFY(!pattern->matches(*beside));
  VERIFY(!pattern->matches(canonical_host("192.0.2.1").value()));
}

void check(std::string_view text) {
  check_host(text);
  check_authority(text);
  check_pattern(text);
  const auto port = parse_port(text);
  if (port) VERIFY(std::to_string(*port) == text && *port != 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  check(rest);
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    check(line);
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  return 0;
}
