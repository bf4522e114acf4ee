// The writable layer of a sandbox, and the overlay of it over an unpacked image.
//
// Two kinds: a tmpfs, here, and a file system on disk (layer_quota.h), which the launcher makes and
// the setup child gets ready. As a rule the setup child makes both in its own namespaces, and the
// overlay keeps its notes in user.* attributes of the layer, a tmpfs. Before Linux 6.6 a tmpfs has
// none of those, and removing a directory of the image fails with EIO. As the host's root the
// supervisor then makes both before it clones the child (make_outer_overlay): trusted.* attributes
// work on every kernel. The child gets detached mounts with the same flags, limits and owners. An
// ordinary user has no such way; `caisson doctor` says so. A quota layer has both kinds of
// attributes on every kernel. Roots that lie over one another always say what they hide in user.*
// attributes: under an overlay of trusted.* ones they first become one, by an overlay of their own
// that nobody can write to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/switches.h"
#include "wall/namespace/ids.h"
#include "wall/plan.h"

namespace caisson::wall {

// Where the new root is put together: any directory that every host has. It is covered in a mount
// namespace of ours alone, which nobody else sees.
inline constexpr const char* kAssembly = "/sys";

// What a layer holds, from fstatfs(2).
struct LayerUse {
  std::uint64_t bytes = 0, inodes = 0;            // in use
  std::uint64_t bytes_left = 0, inodes_left = 0;  // for an ordinary user
};
Result<LayerUse> use_of_layer(int layer_fd);

// MOUNT_ATTR_* of the layer and of the root over it.
std::uint64_t layer_flags(const Plan& plan, SwitchMask off);
// The detached tmpfs, with the plan's limits.
Result<Fd> make_layer_mount(const Plan& plan, SwitchMask off);

// Attaches the mounts in the working directory, each at a directory that is made for it. What
// overlay wants to hear of them: their names, the uppermost first, as `lowerdir`.
Result<std::string> attach_lowers(const std::vector<Fd>& images);
// The uppermost of them, whose root is the root's model.
inline constexpr const char* kUppermost = "lower0";

// Whether a tmpfs of this kernel has user.* attributes.
bool tmpfs_has_user_attributes();

struct OuterOverlay {
  Fd layer, overlay;  // detached
};
// Takes the detached, idmapped mounts of the image's roots, the uppermost first. Needs the host's
// root; the calling process's own mounts stay as they are.
Result<OuterOverlay> make_outer_overlay(const Plan& plan, const Ids& ids, SwitchMask off,
                                        const std::vector<Fd>& images);

}  // namespace caisson::wall
