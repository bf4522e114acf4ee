// Unix sockets that lie in a granted directory.
//
// A socket's path reaches whoever listens on it, through every namespace and also through a
// read-only mount: a granted directory with an agent's or a daemon's socket in it would hand out
// that daemon. The ones that are there when the sandbox is made are covered inside. Looking has an
// end: of a tree with more than kMostLookedAt entries only the first are seen, and a socket that
// the host makes later is not. SECURITY.md says so.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace caisson::box {

inline constexpr std::size_t kMostLookedAt = 20'000;
inline constexpr std::size_t kMostSockets = 32;

// Paths of the sockets below `directory_fd` (O_PATH is enough), relative to it. Error:
// failed_precondition where there are more than kMostSockets.
Result<std::vector<std::string>> find_sockets(int directory_fd);

}  // namespace caisson::box
