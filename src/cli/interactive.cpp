#include "cli/interactive.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/verdict.h"
#include "box/result_json.h"
#include "cli/messages.h"

namespace caisson::cli {
namespace {

constexpr std::size_t kLongestTerm = 32;

std::string terminal_name() {
  const char* term = std::getenv("TERM");
  const std::string_view name = term == nullptr ? "" : term;
  const bool plain =
      !name.empty() && name.size() <= kLongestTerm && std::ranges::all_of(name, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-' || c == '.' || c == '+' || c == '_';
      });
  return plain ? std::string(name) : "dumb";
}

}  // namespace

std::vector<std::string> shell_program() {
  return {"/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh"};
}

int run_on_terminal(HostedSandbox& sandbox, Command command, Session& session) {
  command.env.emplace("TERM", terminal_name());
  command.terminal = terminal_size(0);
  command.input_fd = 0;
  Output out(1, Escapes::kPass);
  RunOptions options;
  options.control = &session.control();
  options.on_output = [&](OutputChannel, std::string_view bytes) { return out.write(bytes); };
  std::optional<Result<RunResult>> result;
  {
    const RawTerminal raw(0);
    session.follow_window();
    result.emplace(sandbox.run(command, options));
  }
  if (!result->has_value()) return say_error(result->error());
  const Outcome& outcome = (*result)->outcome;
  const std::string sentence = box::verdict_sentence(outcome);
  if (!sentence.empty()) say(sentence);
  return exit_status(outcome);
}

}  // namespace caisson::cli
