// How the proxy's process shuts itself in before it reads a byte of a sandbox: no capability and no
// way to gain rights, an id that is nobody's where it was root, no files but those that resolving
// names reads, and nothing of the system but what sockets need.
#pragma once

#include "base/error.h"

namespace caisson::egress {

// Keeps only the descriptors `keep` (and stderr). `parent`: the process whose death is ours.
Status confine(int parent, int first_fd, int second_fd);

}  // namespace caisson::egress
