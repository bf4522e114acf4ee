// The throwaway root of a sandbox, built by the setup child inside its fresh namespaces.
//
// The writable layer is one file system with hard limits in bytes and inodes (layer.h). The host
// image is that one with the host's /usr bound read-only and a generated /etc; an unpacked image is
// the lower side of an overlay whose upper side is that one. /dev, /proc, a stand-in for
// /sys/fs/cgroup and the granted paths come on top; enter_root() then pivots into it and lets the
// old root go. Everything is done through descriptors of the new mount interface; no path is
// resolved twice.
#pragma once

#include <span>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/switches.h"
#include "wall/namespace/cgroup.h"
#include "wall/namespace/ids.h"
#include "wall/namespace/parts.h"
#include "wall/namespace/steps.h"
#include "wall/plan.h"

namespace caisson::wall {

// The clone of a host path that a descriptor names, as a detached mount with the given attributes
// (MOUNT_ATTR_*), submounts included. Private unless `off` says otherwise.
Result<Fd> clone_mount(int path_fd, std::uint64_t attributes, SwitchMask off = 0);

// The same path opened in this mount namespace, which must be a copy of the one in which `path_fd`
// was opened. Fails where the path leads to another file by now.
Result<Fd> reopen_here(int path_fd);

// A detached tmpfs with null, zero, full, random, urandom and tty. Needs the right to make device
// nodes.
Result<Fd> make_device_mount();

class RootBuilder {
 public:
  RootBuilder(const Plan& plan, const Ids& ids, CgroupMode cgroups, RootParts parts, Steps& steps)
      : plan_(plan),
        ids_(ids),
        cgroups_(cgroups),
        off_(plan.switches),
        parts_(std::move(parts)),
        steps_(steps) {}

  // Builds all of it; enter() comes next. `proc_fd` is this pid namespace's own, whole /proc.
  Status build(int proc_fd);
  // pivot_root, detach the old root, and look that it is gone.
  Status enter();
  // The writable layer, for fstatfs(2).
  int layer_fd() const { return layer_.get(); }
  // The file behind /proc/sys/kernel/random/boot_id, for writing.
  int boot_id_fd() const { return boot_id_.get(); }

 private:
  Status make_layer();
  Status make_host_root();
  Status make_image_root();
  // The sandbox's own files of /etc, where the overlay will find them: made through it, each would
  // first be taken off the image by a whiteout, and the directory copied.
  Status make_upper_etc(int assembly_fd, std::string_view lowers);
  Status write_own_files(int etc_fd);
  // A directory of the root that is there in any case; of an image's it belongs to root.
  Status make_missing(const char* name, unsigned mode);
  Status make_directories();
  Status mount_devices();
  Status mount_process(int proc_fd);
  Status make_system();
  Status make_etc();
  // Where the plan has an authority: what the image trusts and it, as one file of our own, which
  // lies over the image's bundles too. In trust.cpp.
  Status put_trust();
  struct TrustFiles {
    Fd pem, java;
  };
  Result<TrustFiles> make_trust_files();
  Status lay_over(int ours_fd, std::span<const char* const> paths);
  Status bind_grants();

  // Walks `path` inside the new root, making missing directories; the last one is returned.
  Result<Fd> make_path(const std::string& path, unsigned mode);
  Status write_new(int directory_fd, const char* name, std::string_view contents, unsigned mode);
  Status own(int directory_fd, const char* name, std::uint32_t uid, std::uint32_t gid);
  Status bind(int source_fd, int directory_fd, const std::string& name, std::uint64_t attributes);
  std::uint64_t safe_flags() const;

  const Plan& plan_;
  const Ids& ids_;
  CgroupMode cgroups_;
  SwitchMask off_;
  RootParts parts_;
  Steps& steps_;
  Fd layer_, boot_id_;
  Fd root_;  // the new root, attached
  bool etc_is_made_ = false;
};

}  // namespace caisson::wall
