// A writable layer on disk with a hard limit: an ext4 of its own (ext4_image.h) on a loop device
// over a file without a name.
//
// Nothing of it has to be removed by anybody. The file has no name from its birth (O_TMPFILE), the
// loop device detaches itself when its last user is gone (autoclear), and the mount is never
// attached to the host's tree: whoever is killed, the last descriptor or namespace takes all of it
// along. Needs the host's root.
//
// Made by the launcher, which keeps a descriptor and at the end of the sandbox abandons the layer
// before it lets go: the kernel then drops what was not yet written instead of writing it to a file
// that is about to vanish. The same spirit throughout: no journal, no barriers (an fsync inside
// reaches the host's page cache and no disk), and the empty file system is written through the
// device's own cache, so that a short run causes no disk traffic but that of making the file.
//
// The device's raw bytes are in nobody's reach but the host's root's: the kernel reads only
// structures that we and itself have written.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/fd.h"
#include "wall/namespace/layer.h"

namespace caisson::wall {

// Whether files of this type of file system (statfs(2)) take memory and no disk.
bool lies_in_memory(std::uint32_t file_system);

struct QuotaWish {
  int directory_fd = -1;                     // borrowed; the file lies on this file system
  std::uint64_t bytes = 0, inodes = 0;       // 0: as much as that file system has room for
  std::uint32_t root_uid = 0, root_gid = 0;  // host ids that own the layer's root directory
  unsigned attributes = 0;                   // MOUNT_ATTR_*
};

struct QuotaLayer {
  Fd mount;         // detached
  Fd root;          // its root directory, open for abandon_layer()
  LayerUse before;  // in use while it is still empty
};

// The errors say what is missing on this host and what is allowed instead.
Result<QuotaLayer> make_quota_layer(const QuotaWish& wish);

// From here on nothing is written any more; what is still mounted answers EIO. For a layer whose
// sandbox has ended. Closes both descriptors.
void abandon_layer(QuotaLayer& layer);

}  // namespace caisson::wall
