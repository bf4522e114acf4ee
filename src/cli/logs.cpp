// caisson logs: what a detached sandbox's command has written.
#include <caisson/sandbox.h>

#include "base/verdict.h"
#include "box/result_json.h"
#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/server_options.h"
#include "cli/terminal.h"

namespace caisson::cli {
namespace {

constexpr std::array<Option, 1> kOptions = {{
    {.name = "--follow",
     .letter = 'f',
     .help = "Go on until the command ends; the exit status is "
             "then the command's, as caisson run gives it."},
}};
constexpr std::array<OptionGroup, 2> kGroups = {{{"Options", kOptions}, kServerGroup}};
constexpr std::array<Example, 1> kExamples = {
    {{"caisson logs -f abcdefgh", "watch it until it ends"}}};

}  // namespace

constinit const CommandTable kLogsTable = {
    .name = "logs",
    .synopsis = "[OPTIONS] ID",
    .summary = "Show the output of a sandbox that was left running",
    .text =
        "The last 1 MiB of output is kept while the sandbox lives, which is until its program "
        "ends. Who follows and reads too slowly is told how much they missed.",
    .groups = kGroups,
    .examples = kExamples,
    .complete = Complete::kSandbox};

int run_logs(const Parsed& parsed, Host& host) {
  if (parsed.arguments.size() != 1) {
    say("one sandbox is needed; caisson logs ID");
    return kExitOwnError;
  }
  auto session = Session::create();
  if (!session.has_value()) return say_error(session.error());
  auto sandbox = host.connect(parsed.arguments[0]);
  if (!sandbox.has_value()) return say_error(sandbox.error());
  Output out(1, Escapes::kFilterOnTerminal), err(2, Escapes::kFilterOnTerminal);
  RunOptions options;
  options.on_output = [&](OutputChannel channel, std::string_view bytes) {
    return (channel == OutputChannel::kStdout ? out : err).write(bytes);
  };
  options.on_missed = [](std::uint64_t bytes) {
    say(std::to_string(bytes) +
        " bytes of output are left out here: they came faster than they "
        "were read, and the last 1 MiB is kept");
  };
  const bool follow = parsed.has("--follow");
  const auto outcome =
      (*sandbox)->attach(follow ? Sandbox::Follow::kYes : Sandbox::Follow::kNo, options);
  out.finish();
  err.finish();
  if (out.reader_gone()) return kExitReaderGone;
  if (!outcome.has_value()) return say_error(outcome.error());
  if (!follow || !outcome->has_value()) return 0;
  const std::string sentence = box::verdict_sentence(**outcome);
  if (!sentence.empty()) say(sentence);
  return exit_status(**outcome);
}

}  // namespace caisson::cli
