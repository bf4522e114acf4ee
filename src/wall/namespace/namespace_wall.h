// The namespace wall: Linux namespaces, control groups, seccomp and Landlock on the host's kernel.
//
// ARCHITECTURE.md tells the order in which a box comes to life and which process has which rights.
#pragma once

#include <memory>

#include "wall/wall.h"

namespace caisson::wall {

std::unique_ptr<Wall> make_namespace_wall();

}  // namespace caisson::wall
