// Passes bytes between two streams, both ways at once, until both have ended.
#pragma once

#include <string>

#include "io/stream.h"

namespace caisson::io {

// What came from each side already goes first. The end of one direction is passed on as such; a
// break of either ends both. On return both are closed or have ended. Both outlive the call. A time
// set by set_timeout() beforehand holds in it.
Async<void> relay(Stream& one, std::string early_of_one, Stream& other, std::string early_of_other);

}  // namespace caisson::io
