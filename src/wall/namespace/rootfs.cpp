#include "wall/namespace/rootfs.h"

#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/kernel_abi.h"
#include "base/secret.h"
#include "base/sys.h"
#include "wall/namespace/layer.h"
#include "wall/namespace/masks.h"
#include "wall/namespace/own_etc.h"

namespace caisson::wall {
namespace {

struct DeviceNode {
  const char* name;
  unsigned major, minor;
};
constexpr DeviceNode kDeviceNodes[] = {{"null", 1, 3},   {"zero", 1, 5},    {"full", 1, 7},
                                       {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0}};

// Of what is only there to be read.
constexpr std::uint64_t kBarred =
    MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;

// The tty group of Debian and most others.
constexpr std::uint32_t kTtyGroup = 5;

// How cgroup v1 writes that memory has no limit.
constexpr const char* kNoLegacyLimit = "9223372036854771712";

Result<Fd> open_path(int directory_fd, const std::string& path) {
  Fd fd(::openat(directory_fd, path.c_str(), O_PATH | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return fail_errno("open " + path);
  return fd;
}

Status make_directory(int directory_fd, const char* name, unsigned mode) {
  if (::mkdirat(directory_fd, name, mode) != 0 && errno != EEXIST)
    return fail_errno(std::string("mkdir ") + name);
  return {};
}

const char* kind_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return "a directory";
    case S_IFLNK:
      return "a symbolic link";
    case S_IFREG:
      return "a file";
    default:
      return "a pipe, a socket or a device";
  }
}

// What an image may not have as anything but a directory: the kernel's own words for it (ELOOP,
// EINVAL at a mount) name neither the image nor what is allowed.
Status check_mount_points(int root_fd) {
  for (const char* name : {"dev", "proc", "sys", "etc"}) {
    struct stat facts{};
    if (::fstatat(root_fd, name, &facts, AT_SYMLINK_NOFOLLOW) != 0)
      return fail_errno(std::string("stat ") + name);
    if (!S_ISDIR(facts.st_mode))
      return fail(Error::precondition(std::string("/") + name + " of the image is " +
                                      kind_of(facts.st_mode) +
                                      "; allowed is a directory, or nothing of that name"));
  }
  return {};
}

// What /dev holds besides its nodes.
Status add_links_and_folders(int device_fd) {
  for (const char* name : {"pts", "shm"}) TRY(make_directory(device_fd, name, 0755));
  constexpr std::pair<const char*, const char*> kLinks[] = {{"pts/ptmx", "ptmx"},
                                                            {"/proc/self/fd", "fd"},
                                                            {"/proc/self/fd/0", "stdin"},
                                                            {"/proc/self/fd/1", "stdout"},
                                                            {"/proc/self/fd/2", "stderr"}};
  for (const auto& [target, name] : kLinks) {
    if (::symlinkat(target, device_fd, name) != 0)
      return fail_errno(std::string("symlink /dev/") + name);
  }
  return {};
}

}  // namespace

Result<Fd> clone_mount(int path_fd, std::uint64_t attributes, SwitchMask off) {
  TRY_ASSIGN(Fd mount, sys::open_tree(path_fd, "", OPEN_TREE_CLONE | AT_RECURSIVE));
  TRY(sys::mount_setattr(mount.get(), true, attributes, 0,
                         is_off(off, Mechanism::kMountPropagation) ? sys::Propagation::kUnchanged
                                                                   : sys::Propagation::kPrivate));
  return mount;
}

Result<Fd> reopen_here(int path_fd) {
  char target[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(path_fd);
  const ssize_t length = ::readlink(link.c_str(), target, sizeof target);
  if (length < 0) return fail_errno("readlink of a granted path");
  if (length == sizeof target) return fail(Error::invalid("a granted path is too long"));
  const std::string path(target, static_cast<std::size_t>(length));
  TRY_ASSIGN(Fd again, open_path(AT_FDCWD, path));
  struct stat before{}, now{};
  if (::fstat(path_fd, &before) != 0 || ::fstat(again.get(), &now) != 0) return fail_errno("fstat");
  if (before.st_dev != now.st_dev || before.st_ino != now.st_ino)
    return fail(Error{Code::kAborted, path + " was exchanged while the sandbox was made"});
  return again;
}

Result<Fd> make_device_mount() {
  const sys::MountOption options[] = {{"mode", "755"}, {"size", "64k"}, {"nr_inodes", "64"}};
  TRY_ASSIGN(Fd mount, sys::make_mount("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  // The umask is the caller's; nodes must have exactly this mode.
  const mode_t mask = ::umask(0);
  for (const DeviceNode& node : kDeviceNodes) {
    if (::mknodat(mount.get(), node.name, S_IFCHR | 0666, makedev(node.major, node.minor)) != 0) {
      ::umask(mask);
      return fail_errno(std::string("mknod ") + node.name);
    }
  }
  ::umask(mask);
  TRY(add_links_and_folders(mount.get()));
  return mount;
}

std::uint64_t RootBuilder::safe_flags() const {
  if (is_off(off_, Mechanism::kMountFlags)) return 0;
  return MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID;
}

Status RootBuilder::own(int directory_fd, const char* name, std::uint32_t uid, std::uint32_t gid) {
  // An id that N does not know stays the guest's, which nobody inside can become.
  const std::uint32_t owner = mapped(ids_.inner_uids, uid).value_or(0);
  const std::uint32_t group = mapped(ids_.inner_gids, gid).value_or(0);
  if (::fchownat(directory_fd, name, owner, group, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) != 0)
    return fail_errno(std::string("chown ") + name);
  return {};
}

Status RootBuilder::write_new(int directory_fd, const char* name, std::string_view contents,
                              unsigned mode) {
  // The image's own file of that name, whatever kind it is, makes room.
  if (::unlinkat(directory_fd, name, 0) != 0 && errno != ENOENT)
    return fail_errno(std::string("unlink ") + name);
  const Fd file(
      ::openat(directory_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file.valid()) return fail_errno(std::string("create ") + name);
  if (::write(file.get(), contents.data(), contents.size()) !=
      static_cast<ssize_t>(contents.size()))
    return fail_errno(std::string("write ") + name);
  if (::fchmod(file.get(), mode) != 0) return fail_errno(std::string("chmod ") + name);
  return own(file.get(), "", 0, 0);
}

Status RootBuilder::bind(int source_fd, int directory_fd, const std::string& name,
                         std::uint64_t attributes) {
  TRY_ASSIGN(const Fd mount, clone_mount(source_fd, attributes));
  return sys::move_mount(mount.get(), directory_fd, name);
}

Result<Fd> RootBuilder::make_path(const std::string& path, unsigned mode) {
  TRY_ASSIGN(Fd at, open_path(root_.get(), "."));
  std::size_t start = 1;
  while (start < path.size()) {
    const std::size_t end = std::min(path.find('/', start), path.size());
    const std::string prefix = path.substr(1, end - 1);
    // Links of the image count as inside, whatever they point to.
    auto next = sys::openat2(
        root_.get(), prefix, O_PATH | O_DIRECTORY, 0,
        is_off(off_, Mechanism::kPathBeneath) ? 0 : RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
    if (!next && next.error().error_number() == ENOENT) {
      const std::string name = path.substr(start, end - start);
      if (::mkdirat(at.get(), name.c_str(), mode) != 0) return fail_errno("mkdir " + prefix);
      TRY(own(at.get(), name.c_str(), plan_.user_uid, plan_.user_gid));
      next = sys::openat2(at.get(), name, O_PATH | O_DIRECTORY, 0,
                          RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
    }
    if (!next) return fail(std::move(next).error().with("/" + prefix));
    at = std::move(next).value();
    start = end + 1;
  }
  return at;
}

Status RootBuilder::make_layer() {
  TRY(steps_.enter("layer"));
  layer_ = std::move(parts_.layer);
  if (!layer_.valid()) {
    TRY_ASSIGN(layer_, make_layer_mount(plan_, off_));
  }
  return sys::move_mount(layer_.get(), AT_FDCWD, kAssembly);
}

Status RootBuilder::make_host_root() {
  TRY(steps_.enter("root"));
  // The root is a directory of the layer, so that what else the layer holds has no name inside.
  TRY(make_directory(layer_.get(), "root", 0755));
  TRY_ASSIGN(const Fd source_root, open_path(AT_FDCWD, std::string(kAssembly) + "/root"));
  TRY(bind(source_root.get(), source_root.get(), "", layer_flags(plan_, off_)));
  TRY_ASSIGN(root_, open_path(AT_FDCWD, std::string(kAssembly) + "/root"));
  TRY(own(root_.get(), "", 0, 0));
  TRY(make_directory(root_.get(), "usr", 0755));
  std::uint64_t flags = safe_flags() | MOUNT_ATTR_NOSUID;
  if (!is_off(off_, Mechanism::kReadOnlyMounts)) flags |= MOUNT_ATTR_RDONLY;
  TRY_ASSIGN(const Fd usr, open_path(AT_FDCWD, "/usr"));
  TRY(bind(usr.get(), root_.get(), "usr", flags));
  // Merged hosts have links here, others have directories.
  for (const char* name : {"bin", "sbin", "lib", "lib32", "lib64", "libx32"}) {
    const std::string path = std::string("/") + name;
    char target[256];
    const ssize_t length = ::readlink(path.c_str(), target, sizeof target - 1);
    if (length > 0) {
      target[length] = '\0';
      if (::symlinkat(target, root_.get(), name) != 0) return fail_errno("symlink " + path);
      continue;
    }
    if (::access(path.c_str(), F_OK) != 0) continue;
    TRY(make_directory(root_.get(), name, 0755));
    TRY_ASSIGN(const Fd source, open_path(AT_FDCWD, path));
    TRY(bind(source.get(), root_.get(), name, flags));
  }
  return {};
}

Status RootBuilder::make_image_root() {
  TRY(steps_.enter("root"));
  if (parts_.overlay.valid()) {
    TRY_ASSIGN(const Fd assembly, open_path(AT_FDCWD, kAssembly));
    TRY(sys::move_mount(parts_.overlay.get(), assembly.get(), "root"));
    TRY_ASSIGN(root_, open_path(assembly.get(), "root"));
    return {};
  }
  for (const char* name : {"upper", "work", "root"}) TRY(make_directory(layer_.get(), name, 0755));
  const std::vector<PlanRoot> roots = image_roots(plan_);
  std::vector<Fd> images = std::move(parts_.images);
  for (std::size_t i = 0; i < roots.size(); ++i) {
    if (images[i].valid()) continue;
    TRY_ASSIGN(const Fd here, reopen_here(plan_.descriptors[roots[i].fd]));
    TRY_ASSIGN(images[i], clone_mount(here.get(), MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV));
  }
  TRY_ASSIGN(const Fd assembly, open_path(AT_FDCWD, kAssembly));
  if (::fchdir(assembly.get()) != 0) return fail_errno("fchdir");
  TRY_ASSIGN(const std::string lowers, attach_lowers(images));
  // The root directory itself is the upper one: give it the image's own mode and owner.
  struct stat image_root{};
  if (::stat(kUppermost, &image_root) != 0) return fail_errno("stat the image's root");
  if (::fchmodat(assembly.get(), "upper", image_root.st_mode & 07777, 0) != 0)
    return fail_errno("chmod upper");
  TRY(own(assembly.get(), "upper", 0, 0));
  TRY(make_upper_etc(assembly.get(), lowers));
  std::vector<sys::MountOption> options = {
      {"lowerdir", lowers.c_str()}, {"upperdir", "upper"}, {"workdir", "work"}};
  options.push_back({"userxattr", nullptr});
  // The upper side ends with the sandbox: nothing has to reach the disk, not even at the end.
  if (lies_on_disk(plan_)) options.push_back({"volatile", nullptr});
  TRY_ASSIGN(const Fd overlay,
             sys::make_mount("overlay", options, static_cast<unsigned>(layer_flags(plan_, off_))));
  TRY(sys::move_mount(overlay.get(), assembly.get(), "root"));
  TRY_ASSIGN(root_, open_path(assembly.get(), "root"));
  return {};
}

Status RootBuilder::make_upper_etc(int assembly_fd, std::string_view lowers) {
  struct stat image_etc{};
  bool there = false;
  // Of images over one another the topmost that has it.
  while (!there && !lowers.empty()) {
    const std::string name = std::string(lowers.substr(0, lowers.find(':'))) + "/etc";
    lowers.remove_prefix(std::min(lowers.size(), name.size() - 3));
    there = ::fstatat(assembly_fd, name.c_str(), &image_etc, AT_SYMLINK_NOFOLLOW) == 0;
    if (!there && errno != ENOENT) return fail_errno("stat " + name);
  }
  // check_mount_points() has the words for it.
  if (there && !S_ISDIR(image_etc.st_mode)) return {};
  if (::mkdirat(assembly_fd, "upper/etc", 0755) != 0) return fail_errno("mkdir upper/etc");
  if (there) {
    if (::fchownat(assembly_fd, "upper/etc", image_etc.st_uid, image_etc.st_gid, 0) != 0)
      return fail_errno("chown upper/etc");
    if (::fchmodat(assembly_fd, "upper/etc", image_etc.st_mode & 07777, 0) != 0)
      return fail_errno("chmod upper/etc");
  } else {
    TRY(own(assembly_fd, "upper/etc", 0, 0));
  }
  TRY_ASSIGN(const Fd etc, sys::openat2(assembly_fd, "upper/etc", O_RDONLY | O_DIRECTORY, 0,
                                        RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
  TRY(write_own_files(etc.get()));
  etc_is_made_ = true;
  return {};
}

Status RootBuilder::write_own_files(int etc_fd) {
  for (const image::GeneratedFile& file : own_etc_files(plan_)) {
    TRY(write_new(etc_fd, std::string(etc_name(file)).c_str(), file.contents, file.mode));
  }
  return {};
}

Status RootBuilder::make_missing(const char* name, unsigned mode) {
  if (::mkdirat(root_.get(), name, mode) != 0)
    return errno == EEXIST ? Status() : fail_errno(std::string("mkdir ") + name);
  // What an image has not is its root's all the same: a build puts files there.
  return plan_.image == PlanImage::kHost ? Status() : own(root_.get(), name, 0, 0);
}

Status RootBuilder::make_directories() {
  for (const char* name : {"dev", "proc", "sys", "etc", "run", "var", "home", "mnt", "opt", "srv"})
    TRY(make_missing(name, 0755));
  TRY(check_mount_points(root_.get()));
  // Where nobody inside is root the directory is nobody's to look into.
  const bool has_root = mapped(ids_.inner_uids, 0).has_value();
  TRY(make_directory(root_.get(), "root", has_root ? 0700 : 0));
  TRY(own(root_.get(), "root", 0, 0));
  TRY(make_missing("tmp", 01777));
  for (const std::string& directory : plan_.directories) {
    auto made = make_path(directory, 0755);
    if (!made) return fail(std::move(made).error().with("a directory that the image names"));
  }
  if (plan_.image != PlanImage::kHost) return {};
  for (const char* name : {"var/lib", "var/log", "var/cache"})
    TRY(make_directory(root_.get(), name, 0755));
  TRY(make_directory(root_.get(), "var/tmp", 01777));
  TRY(make_directory(root_.get(), "home/user", 0755));
  return own(root_.get(), "home/user", plan_.user_uid, plan_.user_gid);
}

Status RootBuilder::mount_devices() {
  TRY(steps_.enter("device"));
  // Shared memory counts against the layer: a directory of it that is not in the root's tree.
  if (parts_.devices.valid()) {
    TRY(sys::move_mount(parts_.devices.get(), root_.get(), "dev"));
  } else {
    const sys::MountOption options[] = {{"mode", "755"}, {"size", "64k"}, {"nr_inodes", "64"}};
    TRY_ASSIGN(const Fd devices,
               sys::make_mount("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
    TRY(sys::move_mount(devices.get(), root_.get(), "dev"));
    for (const DeviceNode& node : kDeviceNodes) {
      const std::string path = std::string("/dev/") + node.name;
      TRY_ASSIGN(const Fd source, open_path(AT_FDCWD, path));
      struct stat facts{};
      if (::fstat(source.get(), &facts) != 0) return fail_errno("stat " + path);
      if (!S_ISCHR(facts.st_mode) || facts.st_rdev != makedev(node.major, node.minor))
        return fail(Error::precondition("the host's " + path + " is not that device"));
      const Fd target(::openat(root_.get(), (std::string("dev/") + node.name).c_str(),
                               O_WRONLY | O_CREAT | O_CLOEXEC | O_EXCL, 0444));
      if (!target.valid()) return fail_errno("create " + path);
      TRY(bind(source.get(), target.get(), "", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
    }
    TRY(add_links_and_folders(devices.get()));
  }
  TRY_ASSIGN(const Fd dev, open_path(root_.get(), "dev"));
  if (is_off(off_, Mechanism::kDevices)) {
    TRY_ASSIGN(const Fd all, open_path(AT_FDCWD, "/dev"));
    TRY(bind(all.get(), root_.get(), "dev", 0));
    return {};
  }
  TRY(make_directory(layer_.get(), "shm", 01777));
  TRY_ASSIGN(const Fd shm, open_path(AT_FDCWD, std::string(kAssembly) + "/shm"));
  TRY(bind(shm.get(), dev.get(), "shm", safe_flags() | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  const std::string tty_group = std::to_string(mapped(ids_.inner_gids, kTtyGroup).value_or(0));
  const sys::MountOption options[] = {
      {"newinstance", nullptr}, {"ptmxmode", "0666"}, {"mode", "0620"}, {"gid", tty_group.c_str()}};
  TRY_ASSIGN(const Fd terminals,
             sys::make_mount("devpts", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC));
  TRY(sys::move_mount(terminals.get(), dev.get(), "pts"));
  // Without ids of its own the command owns what the guest made: nothing is added to /dev or taken
  // away. Devices can be written all the same; shm and pts are mounts of their own.
  if (is_off(off_, Mechanism::kReadOnlyMounts)) return {};
  return sys::mount_setattr(dev.get(), false, MOUNT_ATTR_RDONLY, 0);
}

Status RootBuilder::mount_process(int proc_fd) {
  TRY(steps_.enter("process"));
  TRY_ASSIGN(const Fd target, sys::openat2(root_.get(), "proc", O_PATH | O_DIRECTORY, 0,
                                           RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
  TRY(sys::move_mount(proc_fd, target.get(), ""));
  TRY_ASSIGN(const Fd proc, sys::openat2(root_.get(), "proc", O_PATH | O_DIRECTORY, 0,
                                         RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
  struct statfs facts{};
  if (::fstatfs(proc.get(), &facts) != 0) return fail_errno("fstatfs /proc");
  if (facts.f_type != PROC_SUPER_MAGIC)
    return fail(Error::internal("what is mounted on /proc is not a proc file system"));
  // Two sources cover everything: an empty file and an empty directory, both read-only.
  if (!is_off(off_, Mechanism::kProcReadOnly)) {
    for (const char* name : kReadOnlyProc) {
      auto source = open_path(proc.get(), name);
      if (!source) continue;  // not in this kernel
      TRY(bind(source->get(), proc.get(), name, kBarred));
    }
  }
  TRY(write_new(layer_.get(), ".empty", "", 0444));
  TRY(make_directory(layer_.get(), ".void", 0555));
  // Bound onto themselves with the flags that their clones are to have.
  for (const char* name : {".empty", ".void"}) {
    TRY_ASSIGN(const Fd plain, open_path(AT_FDCWD, std::string(kAssembly) + "/" + name));
    TRY(bind(plain.get(), plain.get(), "", kBarred));
  }
  TRY_ASSIGN(const Fd empty_file, open_path(AT_FDCWD, std::string(kAssembly) + "/.empty"));
  TRY_ASSIGN(const Fd empty_directory, open_path(AT_FDCWD, std::string(kAssembly) + "/.void"));
  constexpr uid_t overflow_id = 65534;  // how an id that is not mapped here shows
  if (!is_off(off_, Mechanism::kProcMasks)) {
    for (const char* name : kMaskedProc) {
      struct stat entry{};
      if (::fstatat(proc.get(), name, &entry, AT_SYMLINK_NOFOLLOW) != 0) continue;
      // Its owner is the host's root, whom no id inside is: what only the owner may see needs no
      // mask.
      if ((entry.st_mode & S_IRWXO) == 0 && entry.st_uid == overflow_id) continue;
      const int source = S_ISDIR(entry.st_mode) ? empty_directory.get() : empty_file.get();
      TRY_ASSIGN(const Fd mask, sys::open_tree(source, "", OPEN_TREE_CLONE));
      TRY(sys::move_mount(mask.get(), proc.get(), name));
    }
  }
  TRY(write_new(layer_.get(), ".boot_id", random_uuid() + "\n", 0444));
  TRY_ASSIGN(const Fd boot_id, open_path(AT_FDCWD, std::string(kAssembly) + "/.boot_id"));
  TRY(bind(boot_id.get(), proc.get(), "sys/kernel/random/boot_id", kBarred));
  boot_id_ = Fd(::openat(layer_.get(), ".boot_id", O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!boot_id_.valid()) return fail_errno("open .boot_id");
  return {};
}

Status RootBuilder::make_system() {
  TRY(steps_.enter("system"));
  // Runtimes that size themselves by their control group find the numbers where they look for them;
  // the control group file system itself is never mounted inside.
  TRY_ASSIGN(const Fd sys_dir, sys::openat2(root_.get(), "sys", O_PATH | O_DIRECTORY, 0,
                                            RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
  // Not in the layer, whose room is the program's alone.
  const sys::MountOption options[] = {{"mode", "755"}, {"size", "64k"}, {"nr_inodes", "32"}};
  TRY_ASSIGN(
      const Fd made,
      sys::make_mount("tmpfs", options, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC));
  const std::string memory = plan_.memory == 0 ? "max" : std::to_string(plan_.memory);
  const std::string quota = plan_.cpu_milli == 0 ? "max" : std::to_string(plan_.cpu_milli * 100);
  const auto put = [&](const std::string& path, const std::string& value) -> Status {
    const Fd file(
        ::openat(made.get(), path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444));
    if (!file.valid()) return fail_errno("create " + path);
    const std::string line = value + "\n";
    if (::write(file.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      return fail_errno("write " + path);
    return {};
  };
  TRY(make_directory(made.get(), "fs", 0755));
  TRY(make_directory(made.get(), "fs/cgroup", 0755));
  TRY(put("fs/cgroup/memory.max", memory));
  TRY(put("fs/cgroup/memory.high", "max"));
  TRY(put("fs/cgroup/cpu.max", quota + " 100000"));
  TRY(put("fs/cgroup/cgroup.controllers", "cpu memory pids"));
  // Some look only below the group that /proc/self/cgroup names: that of the command, /x1 and on,
  // or /../x1 where v2 holds the limits and the guest's group is the top of what is seen. Commands
  // beyond these find no limit, as on a host without control groups.
  const bool beside = cgroups_ == CgroupMode::kUnified;
  const std::string place = beside ? "fs/" : "fs/cgroup/";
  for (const char* group : {"x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8"}) {
    if (::symlinkat(beside ? "cgroup" : ".", made.get(), (place + group).c_str()) != 0)
      return fail_errno("symlink in /sys/fs");
  }
  // Without groups of ours /proc/self/cgroup still names the host's, which may be of either kind.
  if (cgroups_ != CgroupMode::kUnified) {
    for (const char* name : {"fs/cgroup/memory", "fs/cgroup/cpu"})
      TRY(make_directory(made.get(), name, 0755));
    TRY(put("fs/cgroup/memory/memory.limit_in_bytes", plan_.memory == 0 ? kNoLegacyLimit : memory));
    // Node takes neither where one is missing.
    TRY(put("fs/cgroup/memory/memory.soft_limit_in_bytes", kNoLegacyLimit));
    TRY(put("fs/cgroup/cpu/cpu.cfs_quota_us", plan_.cpu_milli == 0 ? "-1" : quota));
    TRY(put("fs/cgroup/cpu/cpu.cfs_period_us", "100000"));
  }
  TRY(sys::mount_setattr(made.get(), false, MOUNT_ATTR_RDONLY, 0));
  return sys::move_mount(made.get(), sys_dir.get(), "");
}

Status RootBuilder::make_etc() {
  TRY(steps_.enter("etc"));
  if (etc_is_made_) return {};
  TRY_ASSIGN(const Fd etc, sys::openat2(root_.get(), "etc", O_RDONLY | O_DIRECTORY, 0,
                                        RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
  if (plan_.image != PlanImage::kHost) return write_own_files(etc.get());
  if (is_off(off_, Mechanism::kGeneratedEtc)) {
    TRY_ASSIGN(const Fd host_etc, open_path(AT_FDCWD, "/etc"));
    return bind(host_etc.get(), root_.get(), "etc", safe_flags());
  }
  Fd kept = std::move(parts_.etc);
  if (ids_.mode != IdMode::kRoot) {
    TRY_ASSIGN(const Fd here, reopen_here(kept.get()));
    TRY_ASSIGN(kept, clone_mount(here.get(), kBarred));
  }
  TRY(sys::move_mount(kept.get(), etc.get(), ""));
  TRY_ASSIGN(const Fd shown, open_path(root_.get(), "etc"));
  for (const image::GeneratedFile& file : files_over_kept_etc(plan_)) {
    const std::string name(etc_name(file));
    const std::string source = "etc-" + name;
    TRY(write_new(layer_.get(), source.c_str(), file.contents, file.mode));
    TRY_ASSIGN(const Fd written, open_path(AT_FDCWD, std::string(kAssembly) + "/" + source));
    TRY(bind(written.get(), shown.get(), name, kBarred));
    (void)::unlinkat(layer_.get(), source.c_str(), 0);
  }
  return {};
}

Status RootBuilder::bind_grants() {
  TRY(steps_.enter("bind"));
  std::vector<std::size_t> order(plan_.grants.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  // A grant below another one comes after it.
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return plan_.grants[a].to < plan_.grants[b].to; });
  for (const std::size_t index : order) {
    const PlanGrant& grant = plan_.grants[index];
    const std::size_t slash = grant.to.rfind('/');
    const std::string leaf = grant.to.substr(slash + 1);
    TRY_ASSIGN(const Fd parent, make_path(grant.to.substr(0, slash), 0755));
    Fd mount = std::move(parts_.grants[index]);
    if (!mount.valid()) {
      TRY_ASSIGN(const Fd here, reopen_here(plan_.descriptors[grant.fd]));
      std::uint64_t flags = safe_flags() | MOUNT_ATTR_NOSUID;
      if (!grant.writable && !is_off(off_, Mechanism::kReadOnlyMounts)) flags |= MOUNT_ATTR_RDONLY;
      TRY_ASSIGN(mount, clone_mount(here.get(), flags, off_));
    }
    if (grant.directory) {
      if (::mkdirat(parent.get(), leaf.c_str(), 0755) != 0 && errno != EEXIST)
        return fail_errno("mkdir " + grant.to);
    } else {
      // What is there already may be anything that is no directory, and is never opened: a FIFO of
      // a hostile image would hold us for ever.
      struct stat there{};
      if (::fstatat(parent.get(), leaf.c_str(), &there, AT_SYMLINK_NOFOLLOW) != 0) {
        if (grant.cover) continue;  // the socket has gone meanwhile
        const Fd file(::openat(parent.get(), leaf.c_str(),
                               O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0444));
        if (!file.valid()) return fail_errno("create " + grant.to);
      }
    }
    TRY_ASSIGN(const Fd target,
               sys::openat2(parent.get(), leaf, O_PATH, 0, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
    struct stat under{};
    if (::fstat(target.get(), &under) != 0) return fail_errno("stat " + grant.to);
    if (S_ISDIR(under.st_mode) != grant.directory)
      return fail(Error::precondition("files: " + grant.to + " is " + kind_of(under.st_mode) +
                                      " of the image; what is granted there is " +
                                      (grant.directory ? "a directory" : "a file")));
    TRY(sys::move_mount(mount.get(), target.get(), ""));
  }
  return {};
}

Status RootBuilder::build(int proc_fd) {
  TRY(make_layer());
  if (plan_.image == PlanImage::kHost) {
    TRY(make_host_root());
  } else {
    TRY(make_image_root());
  }
  TRY(make_directories());
  TRY(mount_devices());
  TRY(mount_process(proc_fd));
  TRY(make_system());
  TRY(make_etc());
  TRY(put_trust());
  return bind_grants();
}

Status RootBuilder::enter() {
  TRY(steps_.enter("pivot"));
  struct stat wanted{}, got{};
  if (::fstat(root_.get(), &wanted) != 0) return fail_errno("stat of the new root");
  if (::fchdir(root_.get()) != 0) return fail_errno("fchdir to the new root");
  if (is_off(off_, Mechanism::kPivot)) {
    if (::chroot(".") != 0) return fail_errno("chroot");
    return {};
  }
  if (::syscall(SYS_pivot_root, ".", ".") != 0) return fail_errno("pivot_root");
  // The old root lies over the new one now; taking it off leaves only the new one.
  if (::umount2(".", MNT_DETACH) != 0) return fail_errno("umount of the old root");
  if (::chdir("/") != 0) return fail_errno("chdir /");
  if (::stat("/", &got) != 0) return fail_errno("stat /");
  if (got.st_dev != wanted.st_dev || got.st_ino != wanted.st_ino)
    return fail(Error::internal("the root is not the one that was built"));
  struct stat above{};
  if (::stat("/..", &above) != 0 || above.st_dev != wanted.st_dev || above.st_ino != wanted.st_ino)
    return fail(Error::internal("something is still reachable above the root"));
  return {};
}

}  // namespace caisson::wall
