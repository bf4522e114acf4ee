// The body of a request that makes a sandbox, in both dialects of E2B's clients. Pure.
#pragma once

#include <cstdint>

#include "api/body.h"
#include "api/call.h"
#include "fleet/fleet.h"

namespace caisson::api::e2b {

// Clients before 2.51 ask at /sandboxes, where a sandbox is open unless `secure` and lives for 15
// seconds unless told otherwise; the others at /v2/sandboxes, where it is always secure and lives
// as long as the server has it (300 seconds, as E2B, where nobody says otherwise).
enum class Dialect : std::uint8_t { kV1, kV2 };

// Errors: invalid_argument naming the field; unimplemented for what this server does not have.
Result<fleet::NewSandbox> parse_new_sandbox(const json::Value& body, Dialect dialect,
                                            const Egress& egress);

}  // namespace caisson::api::e2b
