// Memory of a process that is never written to swap space.
#pragma once

#include <string>

namespace caisson::vault {

// Makes the heap large enough for what the process does and has everything in it, before it has
// allocated much. Single-threaded programs.
void settle_heap();
// All memory, now and later, where the limits allow that (RLIMIT_MEMLOCK, which is raised where it
// may be); else heap and stack as they are, which have what the process computes with. Why neither
// was possible; empty: one was.
std::string lock_memory();

}  // namespace caisson::vault
