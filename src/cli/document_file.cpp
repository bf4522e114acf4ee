#include "cli/document_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/fd.h"
#include "cli/client_servers.h"
#include "policy/flags.h"
#include "policy/network_document.h"

namespace caisson::cli {
namespace {

constexpr std::size_t kMostDocument = 1 << 20;

}  // namespace

Result<std::string> read_document(const std::string& path, const std::string& called) {
  const std::string name = called + " '" + path + "'";
  const Fd file(path == "-" ? ::fcntl(0, F_DUPFD_CLOEXEC, 3)
                            : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return fail_errno(name);
  std::string text;
  char buffer[16 * 1024];
  for (;;) {
    const ssize_t count = ::read(file.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(name);
    if (count == 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > kMostDocument) return fail(Error::invalid(name + " is larger than 1 MiB"));
  }
}

policy::Format format_of(const std::string& path) {
  return path.ends_with(".json") ? policy::Format::kJson : policy::Format::kYaml;
}

Result<policy::NetworkPolicy> read_network_policy(const std::string& path) {
  TRY_ASSIGN(const std::string text, read_document(path, "the network policy"));
  auto policy = policy::parse_network_policy(text, format_of(path));
  if (!policy.has_value()) return fail(std::move(policy).error().with(path));
  return policy;
}

Result<GivenNetwork> read_network(const std::string& value) {
  TRY_ASSIGN(policy::NetworkFlag flag, policy::parse_network(value));
  GivenNetwork given;
  if (!flag.file.empty()) {
    TRY_ASSIGN(given.network, read_network_policy(flag.file));
  } else if (!flag.preset.empty()) {
    const std::string called = "--net preset:" + flag.preset;
    auto found = client_servers(flag.preset, this_host());
    if (!found.has_value()) return fail(std::move(found).error().with(called));
    if (found->servers.empty()) {
      const std::string sources(client_sources(flag.preset));
      return fail(Error::invalid(called + ": " +
                                 (sources.empty() ? "no configuration says which server is meant"
                                                  : "no server is named by " + sources) +
                                 "; name it: " + called + "=HOST[:PORT]"));
    }
    TRY_ASSIGN(given.network, policy::preset_policy(flag.preset, found->servers));
    given.env = std::move(found->env);
  } else {
    given.network = std::move(flag.network);
  }
  return given;
}

}  // namespace caisson::cli
