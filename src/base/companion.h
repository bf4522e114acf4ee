// A program of ours that works beside this one and ends with it, by seeing that its socket has no
// other end: caisson-maker, caisson-vault.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace caisson {

// Where such a program has its socket.
inline constexpr int kCompanionFd = 3;

// Starts `path` with the rights and the environment of this process, in a session of its own, with
// nothing open but standard error and `theirs` as kCompanionFd. It is not waited for. Error: that
// of posix_spawn(3).
Status start_companion(const std::string& path, std::vector<std::string> arguments, Fd theirs);

}  // namespace caisson
