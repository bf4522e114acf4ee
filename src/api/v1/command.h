// A command that a body asks for, and what is passed on of one while it runs.
#pragma once

#include <memory>
#include <string>

#include "api/body.h"
#include "api/call.h"
#include "base/proto.h"
#include "fleet/fleet.h"

namespace caisson::api::v1 {

// The fields that exec and kept commands have alike: command, env, workdir, user, timeout_ms,
// cpu_time_ms, output_bytes, terminal.
inline constexpr std::string_view kCommandKeys[] = {
    "command", "env", "workdir", "user", "timeout_ms", "cpu_time_ms", "output_bytes", "terminal"};
// Those of an OPEN frame. Error: invalid_argument with the key's path.
Result<proto::Fields> read_command(const Object& body, const fleet::Served& sandbox);
// What a frame can carry. Error: invalid_argument.
Status check_size(const proto::Fields& open);

// kPty and kResize of {"columns":80,"rows":24}.
Result<std::string> read_terminal(const Object& size);

// Whether a command outlives the client that reads it.
enum class WithClient : std::uint8_t { kGoesOn, kEnds };
// Answers with what the command says and how it ends, as lines of JSON (api/exec_lines.h).
io::Async<Result<Answer>> follow(Call& call, const fleet::Served& sandbox,
                                 std::shared_ptr<fleet::BoxStream> stream, WithClient with_client);
// Asks for the command's end; its verdict is "cancelled".
void end_command(fleet::BoxStream& stream);

}  // namespace caisson::api::v1
