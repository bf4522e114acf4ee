// Files between host and sandbox, over the file streams of a connection.
//
// Everything on the host's side is done relative to descriptors that were opened before, one path
// component at a time, never through a link; what comes from the sandbox (names, types, sizes) is
// hostile and checked. In: regular files, directories, links as links. Out: the same, but of links
// only those that stay inside the tree that is copied; every file is written beside its place and
// renamed over it, so that a host file is replaced as a whole or not at all. Depth, number of
// entries and length of names are bounded. One thread; nothing else may use the connection
// meanwhile.
#pragma once

#include <string>

#include "base/error.h"
#include "box/connection.h"
#include "box/host_path.h"

namespace caisson::box {

// Who the copied files belong to inside.
struct InsideOwner {
  std::uint32_t uid = 1000, gid = 1000;
};

// `source` becomes `inside` (absolute). Missing directories above it are made. An existing
// directory is filled, an existing file replaced.
Status copy_in(Connection& connection, const HostPath& source, const std::string& inside,
               InsideOwner owner);

// The file or directory `inside` becomes `target`: where target.inside is a directory, a file goes
// into it under its own name and a directory is merged into it.
Status copy_out(Connection& connection, const std::string& inside, const HostTarget& target);

// Whether a link that lies `depth` directories below the copied tree's root stays in that tree.
bool link_stays_inside(std::string_view target, std::size_t depth);
// Whether `name` can be one directory entry on this host.
bool is_entry_name(std::string_view name);

}  // namespace caisson::box
