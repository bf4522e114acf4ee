// caisson cp: files between the host and a sandbox that runs.
#include <caisson/sandbox.h>

#include <optional>
#include <string>

#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/server_options.h"
#include "cli/terminal.h"
#include "policy/inside_path.h"

namespace caisson::cli {
namespace {

constexpr std::array<OptionGroup, 1> kGroups = {{kServerGroup}};
constexpr std::array<Example, 2> kExamples = {{
    {"caisson cp ./data abcdefgh:/home/user/data", "a folder into the sandbox"},
    {"caisson cp abcdefgh:/home/user/report.html .", "a file out of it"},
}};

// "ID:PATH"; none where the argument is a host path (it has no colon, or a slash before it).
struct InsidePlace {
  std::string id, path;
};
std::optional<InsidePlace> inside_place(const std::string& argument) {
  const std::size_t colon = argument.find(':');
  if (colon == std::string::npos || colon == 0) return std::nullopt;
  if (argument.substr(0, colon).contains('/') || argument.starts_with('.')) return std::nullopt;
  return InsidePlace{.id = argument.substr(0, colon), .path = argument.substr(colon + 1)};
}

Status copy(Host& host, const std::string& from, const std::string& to) {
  std::optional<InsidePlace> source = inside_place(from), target = inside_place(to);
  if (source.has_value() == target.has_value())
    return fail(Error::invalid("one of the two must be ID:PATH, the other a path of this host"));
  InsidePlace& inside = source.has_value() ? *source : *target;
  // A final slash, as shells complete it, says nothing new about a path that must be whole.
  while (inside.path.size() > 1 && inside.path.ends_with('/')) inside.path.pop_back();
  if (const auto allowed = policy::path_fault(inside.path); !allowed.empty())
    return fail(Error::invalid("'" + inside.path + "' is no path inside a sandbox; allowed is " +
                               std::string(allowed)));
  TRY_ASSIGN(const std::unique_ptr<HostedSandbox> sandbox, host.connect(inside.id));
  if (source.has_value()) return sandbox->copy_out(inside.path, to);
  return sandbox->copy_in(from, inside.path);
}

}  // namespace

constinit const CommandTable kCpTable = {
    .name = "cp",
    .synopsis = "[OPTIONS] SOURCE TARGET",
    .summary = "Copy files between this host and a sandbox that runs",
    .text =
        "One of the two is ID:PATH with an absolute PATH. Directories are copied with what is in "
        "them. Links are copied as links and never followed; on the way out only those that stay "
        "inside what is copied. A file of this host is replaced as a whole or not at all.",
    .groups = kGroups,
    .examples = kExamples,
    .complete = Complete::kFile};

int run_cp(const Parsed& parsed, Host& host) {
  if (parsed.arguments.size() != 2) {
    say("two places are needed; caisson cp SOURCE TARGET, one of them ID:PATH");
    return kExitOwnError;
  }
  const auto copied = copy(host, parsed.arguments[0], parsed.arguments[1]);
  return copied.has_value() ? 0 : say_error(copied.error());
}

}  // namespace caisson::cli
