// Descriptors of user namespaces that exist only to carry an id mapping for idmapped mounts
// (mount_setattr(2), MOUNT_ATTR_IDMAP). Needs the right to write arbitrary maps: root mode alone.
#pragma once

#include "base/error.h"
#include "base/fd.h"
#include "wall/namespace/ids.h"

namespace caisson::wall {

// A user namespace with these maps (inside: the id on disk; outside: the host id that it becomes).
Result<Fd> make_mapping(const IdMap& uids, const IdMap& gids);

// The map that shows `disk_base`+k as the host id of image id k.
IdMap image_mapping(const IdMap& outer, const IdMap& inner, std::uint32_t disk_base);

}  // namespace caisson::wall
