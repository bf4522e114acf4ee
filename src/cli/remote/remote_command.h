// One command on a server, run to its end or followed: its output comes as lines of JSON, and its
// input, signals and sizes go by calls beside them.
#pragma once

#include <caisson/sandbox.h>

#include <optional>
#include <string>

#include "cli/remote/api.h"

namespace caisson::cli {

// What of a command its sandbox's spec says: a server's sandbox leaves it to each command.
struct CommandBounds {
  std::optional<std::uint64_t> timeout_ms, output;
};

// Starts it. `ends_sandbox`: the sandbox lives for it.
enum class Lives : unsigned char { kForItself, kForTheCommand };
struct Started {
  std::uint32_t number = 0;
  std::optional<Outcome> outcome;  // it could not be started
};
io::Async<Result<Started>> start_command(Api& api, std::string sandbox, const Command& command,
                                         CommandBounds bounds, Lives lives);

// Follows a command that was started to its end, feeds it `command`'s input, and does what the
// options' Control asks: a first cancel ends the command, a second one the sandbox.
io::Async<Result<RunResult>> follow_command(Api& api, std::string sandbox, std::uint32_t number,
                                            const Command& command, const RunOptions& options);

// Reads the output of a kept command. No outcome: it goes on.
io::Async<Result<std::optional<Outcome>>> read_command(Api& api, std::string sandbox,
                                                       std::uint32_t number, Sandbox::Follow follow,
                                                       const RunOptions& options);

// The JSON body that asks for it. Error: invalid_argument, for text that JSON cannot hold. Pure.
Result<json::Value> command_body(const Command& command, CommandBounds bounds, Lives lives);

}  // namespace caisson::cli
