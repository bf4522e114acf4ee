// caisson exec: one more command in a sandbox that runs.
#include <caisson/sandbox.h>
#include <unistd.h>

#include <string>

#include "base/verdict.h"
#include "box/result_json.h"
#include "cli/commands.h"
#include "cli/interactive.h"
#include "cli/messages.h"
#include "cli/server_options.h"
#include "cli/terminal.h"
#include "policy/inside_path.h"
#include "policy/syntax.h"

namespace caisson::cli {
namespace {

constexpr std::array<Option, 6> kOptions = {{
    {.name = "--interactive", .letter = 'i', .help = "Pass on input also from a terminal."},
    {.name = "--tty",
     .letter = 't',
     .help = "Give the program a terminal; implies "
             "--interactive."},
    {.name = "--env", .letter = 'e', .value = "K=V", .help = "Set a variable; may be repeated."},
    {.name = "--user",
     .letter = 'u',
     .value = "USER",
     .help = "Run as NAME, UID[:GID] or "
             "NAME:GROUP of the image."},
    {.name = "--workdir", .letter = 'w', .value = "PATH", .help = "Start in PATH, inside."},
    {.name = "--json", .help = "Print one line of JSON instead of the output."},
}};
constexpr std::array<OptionGroup, 2> kGroups = {{{"Options", kOptions}, kServerGroup}};
constexpr std::array<Example, 2> kExamples = {{
    {"caisson exec abcdefgh -- ps aux", "list its processes"},
    {"caisson exec -t abcdefgh -- bash", "a shell in it"},
}};

Status fill(Command& command, const Parsed& parsed) {
  for (const Parsed::Given& given : parsed.options) {
    if (given.option->name == "--env") {
      const std::size_t equals = given.value.find('=');
      const std::string name = given.value.substr(0, equals);
      if (const auto allowed = policy::env_name_fault(name); !allowed.empty())
        return fail(Error::invalid("--env: found '" + given.value + "'; allowed is " +
                                   std::string(allowed) + ", then = and the value"));
      if (equals == std::string::npos)
        return fail(Error::invalid("--env: found '" + given.value + "'; allowed is NAME=VALUE"));
      command.env[name] = given.value.substr(equals + 1);
    } else if (given.option->name == "--user") {
      if (const auto allowed = policy::user_fault(given.value); !allowed.empty())
        return fail(Error::invalid("--user: found '" + given.value + "'; allowed is " +
                                   std::string(allowed)));
      command.user = given.value;
    } else if (given.option->name == "--workdir") {
      if (const auto allowed = policy::path_fault(given.value); !allowed.empty())
        return fail(Error::invalid("--workdir: found '" + given.value + "'; allowed is " +
                                   std::string(allowed)));
      command.workdir = given.value;
    }
  }
  return {};
}

}  // namespace

constinit const CommandTable kExecTable = {
    .name = "exec",
    .synopsis = "[OPTIONS] ID [--] PROGRAM [ARGUMENT...]",
    .summary = "Run a program in a sandbox that is running",
    .text =
        "ID may be shortened to where it is still one sandbox's. The program has the sandbox's "
        "limits, and its exit status is reported as by caisson run.",
    .groups = kGroups,
    .examples = kExamples,
    .trailing = true,
    .complete = Complete::kSandbox};

int run_exec(const Parsed& parsed, Host& host) {
  std::span<const std::string> rest(parsed.arguments);
  if (rest.empty()) {
    say("no sandbox given; caisson exec ID -- PROGRAM [ARGUMENT...]");
    return kExitOwnError;
  }
  const std::string id = rest[0];
  rest = rest.subspan(1);
  if (!rest.empty() && rest[0] == "--") rest = rest.subspan(1);
  if (rest.empty()) {
    say("no program given; caisson exec ID -- PROGRAM [ARGUMENT...]");
    return kExitOwnError;
  }
  Command command;
  command.arguments.assign(rest.begin(), rest.end());
  if (const auto filled = fill(command, parsed); !filled.has_value())
    return say_error(filled.error());
  const bool terminal = parsed.has("--tty");
  if (terminal && (::isatty(0) != 1 || ::isatty(1) != 1)) {
    say("--tty needs a terminal");
    return kExitOwnError;
  }
  auto session = Session::create();
  if (!session.has_value()) return say_error(session.error());
  session->listen();
  auto sandbox = host.connect(id);
  if (!sandbox.has_value()) return say_error(sandbox.error());
  if (terminal) return run_on_terminal(**sandbox, std::move(command), *session);
  if (::isatty(0) != 1 || parsed.has("--interactive")) command.input_fd = 0;
  Output out(1, Escapes::kFilterOnTerminal), err(2, Escapes::kFilterOnTerminal);
  RunOptions options;
  options.control = &session->control();
  const bool json = parsed.has("--json");
  if (!json)
    options.on_output = [&](OutputChannel channel, std::string_view bytes) {
      return (channel == OutputChannel::kStdout ? out : err).write(bytes);
    };
  const auto result = (*sandbox)->run(command, options);
  out.finish();
  err.finish();
  if (!result.has_value()) {
    if (json) write_all(1, box::error_line(result.error()) + "\n");
    return say_error(result.error());
  }
  if (json)
    write_all(1, box::result_line(*result, {.wall = (*sandbox)->info().wall,
                                            .image = (*sandbox)->info().image}) +
                     "\n");
  if (out.reader_gone()) return kExitReaderGone;
  const std::string sentence = box::verdict_sentence(result->outcome);
  if (!sentence.empty()) say(sentence);
  return exit_status(result->outcome);
}

}  // namespace caisson::cli
