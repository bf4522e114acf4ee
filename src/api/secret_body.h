// The body of a request that has a secret's value, on its way to the vault: it goes through this
// process, which ends TLS and HTTP, unread, and its memory is wiped behind it.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "http/server.h"
#include "io/async.h"

namespace caisson::api {

// All of the body in a pipe whose other end is closed, for vault::Vault::keep(): it lies in the
// kernel alone. Errors: out_of_range (vault::kMostSecretBody), unavailable (no room in pipes),
// invalid_argument where it broke off.
io::Async<Result<Fd>> forward_body(http::Exchange& exchange);

}  // namespace caisson::api
