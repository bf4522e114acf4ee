// The inside of a Sandbox for our own code above this folder: its connection, for file operations
// that the public API does not have (image builds copy with owners and modes). Borrowed; nothing
// else may use the sandbox meanwhile.
#pragma once

#include <caisson/sandbox.h>

#include "box/connection.h"

namespace caisson::box {

struct Access {
  static Connection& connection(Sandbox& sandbox);
};

}  // namespace caisson::box
