// Files between host and sandbox, over the file streams of a connection or through a server.
//
// Everything on the host's side is done relative to descriptors that were opened before, never
// through a link; what comes from the sandbox (names, types, sizes) is hostile and checked. In:
// regular files, directories, links as links. Out: the same, but of links only those that stay
// inside the tree that is copied; every file is written beside its place and renamed over it, so
// that a host file is replaced as a whole or not at all, and long runs of zero bytes become holes.
// Both ways files and directories keep their time of modification.
// Depth, number of entries, bytes and length of names are bounded. One thread; nothing else may use
// the connection meanwhile.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "box/connection.h"
#include "box/file_access.h"
#include "box/host_path.h"

namespace caisson::box {

inline constexpr std::size_t kMostEntries = 1'000'000;

// What to do where the target is a directory already: fill it, or put the copy into it under its
// own name. A file always goes into it.
enum class Existing { kMerge, kInto };

// `source` becomes `inside` (absolute), made by the inside user `user`; where that user may not, by
// the inside root, and then everybody inside may write it. Missing directories above are made, an
// existing file is replaced. `name` is the source's own.
Status copy_in(FileAccess& files, const HostPath& source, const std::string& name,
               const std::string& inside, const std::string& user, Existing existing);
Status copy_in(Connection& connection, const HostPath& source, const std::string& name,
               const std::string& inside, const std::string& user, Existing existing);

// The file or directory `inside` becomes `target`, read as `user`; at most `most_bytes`.
Status copy_out(FileAccess& files, const std::string& inside, const HostTarget& target,
                const std::string& user, Existing existing, std::uint64_t most_bytes);
Status copy_out(Connection& connection, const std::string& inside, const HostTarget& target,
                const std::string& user, Existing existing, std::uint64_t most_bytes);

}  // namespace caisson::box
