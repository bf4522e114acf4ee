// caisson shell: a terminal in a sandbox.
#include <caisson/sandbox.h>
#include <unistd.h>

#include <string>

#include "base/verdict.h"
#include "box/result_json.h"
#include "cli/commands.h"
#include "cli/interactive.h"
#include "cli/messages.h"
#include "cli/server_options.h"
#include "cli/spec_options.h"

namespace caisson::cli {
namespace {

constexpr std::array<OptionGroup, 3> kGroups = {
    {{"What it may see and be", kAccessOptions}, {"Limits", kLimitOptions}, kServerGroup}};
constexpr std::array<Example, 2> kExamples = {{
    {"caisson shell --ro .", "look around in a sandbox that can read this folder"},
    {"caisson shell --image base --privileges sudo", "a shell in which sudo works, inside only"},
}};

// A shell waits for a person: limits of time and output that suit a program would end it.
constexpr std::uint64_t kShellTimeMs = 8ull * 3600 * 1000;
constexpr std::uint64_t kShellCpuTimeMs = 3600ull * 1000;
constexpr std::uint64_t kShellOutput = 1ull << 30;

}  // namespace

constinit const CommandTable kShellTable = {
    .name = "shell",
    .synopsis = "[OPTIONS] [-- PROGRAM [ARGUMENT...]]",
    .summary = "Open a terminal in a sandbox that is gone when the shell ends",
    .text =
        "Runs the image's shell, or PROGRAM, on a terminal of the sandbox's own; the window's size "
        "is passed on, and what the program sends reaches your terminal as it is, because a "
        "full-screen program needs it. Unless options say otherwise it may last 8 hours, use one "
        "hour of processor time and write 1 GiB.",
    .groups = kGroups,
    .examples = kExamples,
    .trailing = true,
    .complete = Complete::kFile};

int run_shell(const Parsed& parsed, Host& host) {
  if (::isatty(0) != 1 || ::isatty(1) != 1) {
    say("caisson shell needs a terminal; use 'caisson run' in a pipe");
    return kExitOwnError;
  }
  policy::SpecValues defaults;
  defaults.limits.timeout_ms = kShellTimeMs;
  defaults.limits.cpu_time_ms = kShellCpuTimeMs;
  defaults.limits.output = kShellOutput;
  auto spec = spec_from(parsed, std::move(defaults));
  if (!spec.has_value()) return say_error(spec.error());
  auto session = Session::create();
  if (!session.has_value()) return say_error(session.error());
  session->listen();
  auto sandbox = host.create(*spec, {});
  if (!sandbox.has_value()) return say_error(sandbox.error());
  for (const std::string& remark : (*sandbox)->notes()) note(remark);
  Command command;
  command.arguments = (*spec)->command;
  if (command.arguments.empty()) command.arguments = shell_program();
  const int status = run_on_terminal(**sandbox, std::move(command), *session);
  if (const auto closed = (*sandbox)->close(); !closed.has_value()) say(closed.error().message());
  return status;
}

}  // namespace caisson::cli
