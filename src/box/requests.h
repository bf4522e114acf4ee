// What a client asks of a sandbox itself, on stream 0 of its connection: its deadline, whether it
// is held, what it uses, which commands it keeps.
//
// One request at a time, which waits for its answer; nothing else may use the connection meanwhile,
// and frames of streams that are over are dropped. One thread.
#pragma once

#include <caisson/sandbox.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "box/connection.h"
#include "wall/handouts.h"

namespace caisson::box {

// The new deadline in Unix milliseconds.
Result<std::int64_t> set_deadline(Connection& connection, std::uint64_t from_now_ms);
enum class Held : std::uint8_t { kNo, kYes };
Status hold(Connection& connection, Held held);
// What a kept sandbox's layer is read by. Everything in it stands still until release() or the end
// of the connection. Errors: failed_precondition (it was not made for that, or this host cannot
// hold it), unavailable (somebody reads it already).
Result<wall::Handouts> hold_layer(Connection& connection);
Status release_layer(Connection& connection);
// Ends everything that runs in a kept sandbox. With kYes it is held then.
Status reboot(Connection& connection, Held then);
// `policy`: JSON (policy/network_document.h). Errors: failed_precondition (the sandbox was made
// without a gateway, or its maker has it), resource_exhausted (too long).
Status set_network(Connection& connection, std::string_view policy);
Result<SandboxUsage> usage(Connection& connection);
Result<std::vector<KeptCommand>> list_kept(Connection& connection);

// Neither is answered. A kept sandbox goes on without its maker; the whole sandbox ends.
void send_settled(Connection& connection);
void send_shutdown(Connection& connection);

}  // namespace caisson::box
