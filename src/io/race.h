// Two coroutines at once: until the first has ended, or until both have.
//
// For handlers that wait for a sandbox and for their client at once. Cancelled is only what the
// other one waits for: it is resumed there, and ends at its next wait at the latest.
#pragma once

#include "io/async.h"

namespace caisson::io {

// Returns when one of them has ended and the other, cancelled, has too. Both run on the caller's
// loop. What they give they leave where both sides look, which outlives this call.
Async<void> race(Async<void> one, Async<void> other);

// Returns when both have ended. Where it is cancelled itself, both are.
Async<void> both(Async<void> one, Async<void> other);

}  // namespace caisson::io
