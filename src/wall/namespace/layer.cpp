#include "wall/namespace/layer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "base/kernel_abi.h"
#include "base/sys.h"

namespace caisson::wall {
namespace {

// A directory of the layer that belongs to these host ids, whatever the umask.
Status make_owned(int layer_fd, const char* name, mode_t mode, uid_t uid, gid_t gid) {
  if (::mkdirat(layer_fd, name, mode) != 0) return fail_errno(std::string("mkdir ") + name);
  if (::fchownat(layer_fd, name, uid, gid, AT_SYMLINK_NOFOLLOW) != 0)
    return fail_errno(std::string("chown ") + name);
  // After the owner, whose change takes some bits away.
  if (::fchmodat(layer_fd, name, mode, 0) != 0) return fail_errno(std::string("chmod ") + name);
  return {};
}

constexpr const char* kMerged = "merged";

// The detached overlay of nothing but the roots.
Result<Fd> merge_lowers(const std::string& lowers) {
  const sys::MountOption options[] = {{"lowerdir", lowers.c_str()}, {"userxattr", nullptr}};
  return sys::make_mount("overlay", options, MOUNT_ATTR_RDONLY);
}

// In a process of its own, whose mount namespace ends with it: an overlay takes only directories
// that are mounted in the namespace of whoever makes it.
Result<OuterOverlay> assemble(const Plan& plan, const Ids& ids, SwitchMask off,
                              const std::vector<Fd>& images) {
  if (::unshare(CLONE_NEWNS) != 0) return fail_errno("unshare mount namespace");
  if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return fail_errno("make mounts private");
  TRY_ASSIGN(const Fd layer, make_layer_mount(plan, off));
  TRY(sys::move_mount(layer.get(), AT_FDCWD, kAssembly));
  const uid_t guest_uid = mapped(ids.outer_uids, 0).value_or(ids.supervisor_uid);
  const gid_t guest_gid = mapped(ids.outer_gids, 0).value_or(ids.supervisor_gid);
  if (::fchownat(layer.get(), "", guest_uid, guest_gid, AT_EMPTY_PATH) != 0)
    return fail_errno("chown of the layer");
  for (const char* name : {"work", kMerged, "root"})
    TRY(make_owned(layer.get(), name, 0755, guest_uid, guest_gid));
  if (::chdir(kAssembly) != 0) return fail_errno(std::string("chdir ") + kAssembly);
  TRY_ASSIGN(std::string lowers, attach_lowers(images));
  struct stat image_root{};
  if (::stat(kUppermost, &image_root) != 0) return fail_errno("stat the image's root");
  if (images.size() > 1) {
    TRY_ASSIGN(const Fd merged, merge_lowers(lowers));
    TRY(sys::move_mount(merged.get(), AT_FDCWD, kMerged));
    lowers = kMerged;
  }
  TRY(make_owned(layer.get(), "upper", image_root.st_mode & 07777,
                 ids.host_uid(0).value_or(guest_uid), ids.host_gid(0).value_or(guest_gid)));
  // As `userxattr` has it: nothing in the image's own attributes leads anywhere.
  const sys::MountOption options[] = {{"lowerdir", lowers.c_str()}, {"upperdir", "upper"},
                                      {"workdir", "work"},          {"index", "off"},
                                      {"redirect_dir", "nofollow"}, {"metacopy", "off"}};
  OuterOverlay made;
  TRY_ASSIGN(made.overlay,
             sys::make_mount("overlay", options, static_cast<unsigned>(layer_flags(plan, off))));
  TRY_ASSIGN(made.layer, sys::open_tree(layer.get(), "", OPEN_TREE_CLONE));
  TRY(sys::mount_setattr(made.layer.get(), false, 0, 0));
  return made;
}

}  // namespace

Result<LayerUse> use_of_layer(int layer_fd) {
  struct statfs facts{};
  if (::fstatfs(layer_fd, &facts) != 0) return fail_errno("fstatfs of the layer");
  const auto block = static_cast<std::uint64_t>(facts.f_bsize);
  return LayerUse{.bytes = (facts.f_blocks - facts.f_bfree) * block,
                  .inodes = facts.f_files - facts.f_ffree,
                  .bytes_left = facts.f_bavail * block,
                  .inodes_left = facts.f_ffree};
}

std::uint64_t layer_flags(const Plan& plan, SwitchMask off) {
  if (is_off(off, Mechanism::kMountFlags)) return 0;
  return MOUNT_ATTR_NODEV | (plan.privileges != 0 ? 0u : MOUNT_ATTR_NOSUID);
}

Result<Fd> make_layer_mount(const Plan& plan, SwitchMask off) {
  const std::string size = std::to_string(plan.disk), inodes = std::to_string(plan.inodes);
  const bool limited = !is_off(off, Mechanism::kLayerLimits);
  // Without a limit of ours tmpfs would take half of the host's memory; "0" is no limit at all.
  const sys::MountOption options[] = {
      {"mode", "755"},
      {"size", limited && plan.disk != 0 ? size.c_str() : "0"},
      {"nr_inodes", limited && plan.inodes != 0 ? inodes.c_str() : "0"}};
  return sys::make_mount("tmpfs", options, static_cast<unsigned>(layer_flags(plan, off)));
}

Result<std::string> attach_lowers(const std::vector<Fd>& images) {
  std::string names;
  for (std::size_t i = 0; i < images.size(); ++i) {
    const std::string name = "lower" + std::to_string(i);
    if (::mkdir(name.c_str(), 0755) != 0) return fail_errno("mkdir " + name);
    TRY(sys::move_mount(images[i].get(), AT_FDCWD, name.c_str()));
    if (!names.empty()) names += ':';
    names += name;
  }
  return names;
}

bool tmpfs_has_user_attributes() {
  // A memory file lives on the kernel's own tmpfs, which is there already.
  const Fd file(::memfd_create("caisson-probe", MFD_CLOEXEC));
  return file.valid() && ::fsetxattr(file.get(), "user.caisson", "", 0, 0) == 0;
}

Result<OuterOverlay> make_outer_overlay(const Plan& plan, const Ids& ids, SwitchMask off,
                                        const std::vector<Fd>& images) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("socketpair");
  const Fd here(ends[0]);
  Fd there(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork for the overlay");
  if (pid == 0) {
    (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto made = assemble(plan, ids, off, images);
    if (made) {
      const int mounts[] = {made->layer.get(), made->overlay.get()};
      (void)sys::send_message(there.get(), "ok", mounts);
    } else {
      (void)sys::send_message(there.get(), made.error().message(), {});
    }
    ::_exit(0);
  }
  there.reset();
  auto answer = sys::recv_message(here.get(), 4096);
  (void)::waitpid(pid, nullptr, 0);
  if (!answer) return fail(std::move(answer).error());
  if (answer->bytes != "ok" || answer->descriptors.size() != 2) {
    return fail(Error::internal(answer->bytes.empty()
                                    ? std::string("the process that makes the overlay died")
                                    : "make the overlay outside: " + answer->bytes));
  }
  return OuterOverlay{std::move(answer->descriptors[0]), std::move(answer->descriptors[1])};
}

}  // namespace caisson::wall
