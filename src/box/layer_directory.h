// Where the writable layers of `layer: quota` lie: state_directory()/layers, on a disk. Nothing
// ever has a name there; the launcher makes its files without one.
#pragma once

#include "base/error.h"
#include "base/fd.h"

namespace caisson::box {

// Made where it is missing. Error: precondition for an ordinary user, who cannot have such a layer.
Result<Fd> open_layer_directory();

}  // namespace caisson::box
