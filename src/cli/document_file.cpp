#include "cli/document_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/fd.h"
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

}  // namespace caisson::cli
