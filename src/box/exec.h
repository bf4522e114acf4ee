// One command over a connection: opens the stream, moves input and output under credit, obeys a
// Control, and returns the outcome of the CLOSE frame.
//
// Borrows the connection for the call, which no other stream may use meanwhile; frames of streams
// that are over are dropped. One thread; nothing is started.
#pragma once

#include <caisson/sandbox.h>

#include <optional>
#include <variant>

#include "base/error.h"
#include "box/connection.h"

namespace caisson::box {

// Asks for the command: the stream by which it is followed. Only queued; nothing waits.
Result<std::uint32_t> open_exec(Connection& connection, const Command& command);
// Both together.
Result<RunResult> run_exec(Connection& connection, const Command& command,
                           const RunOptions& options);
// Follows the command of open_exec() to its end.
Result<RunResult> run_exec(Connection& connection, std::uint32_t stream, const Command& command,
                           const RunOptions& options);

// Opens the stream and returns once the command runs (nullopt) or could not be started.
Result<std::optional<Outcome>> start_exec(Connection& connection, const Command& command);

// The same of one that is to survive us.
Result<std::variant<KeptCommand, Outcome>> keep_exec(Connection& connection, const Command& command,
                                                     const KeepOptions& options);

// Joins the sandbox's main command (no number), or a kept one; see Sandbox::attach.
Result<std::optional<Outcome>> attach_exec(Connection& connection,
                                           std::optional<std::uint32_t> number, Sandbox::From from,
                                           const RunOptions& options);

// What a Control writes into its pipe; Control and run_exec agree on it here.
struct Request {
  enum Kind : std::uint8_t { kCancel = 1, kSignal = 2, kResize = 3 };
  std::uint8_t kind = 0;
  std::uint8_t reserved = 0;
  std::uint16_t first = 0, second = 0;
};
static_assert(sizeof(Request) == 6);

}  // namespace caisson::box
