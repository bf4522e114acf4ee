#include "wall/namespace/disks.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <climits>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "wall/namespace/layer.h"

namespace caisson::wall {
namespace {

constexpr std::size_t kMaxMountInfo = 4 << 20;

// File systems in memory: what is read and written there reaches no disk.
constexpr std::array kInMemory = std::to_array<std::string_view>(
    {"tmpfs",  "ramfs",    "rootfs",      "devtmpfs", "proc",    "sysfs",      "cgroup", "cgroup2",
     "devpts", "mqueue",   "securityfs",  "debugfs",  "tracefs", "hugetlbfs",  "bpf",    "configfs",
     "pstore", "efivarfs", "binfmt_misc", "fusectl",  "autofs",  "rpc_pipefs", "nsfs"});
// File systems whose writing of dirty pages the kernel accounts to the group that made them dirty
// (SB_I_CGROUPWB). ext3 is ext4's other name.
constexpr std::array kAccounted =
    std::to_array<std::string_view>({"ext2", "ext3", "ext4", "btrfs", "f2fs", "xfs"});

constexpr std::string_view kNoDisk = "no disk is known behind ";

bool is_one_of(std::string_view word, std::span<const std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

struct Mount {
  std::uint64_t id = 0;
  Disk device;
  std::string point, type, source;
};

// Undoes mountinfo's octal escapes of space, tab, newline and backslash.
std::string unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    if (text[i] == '\\' && text.size() - i > 3 &&
        std::from_chars(&text[i + 1], &text[i + 4], code, 8).ptr == &text[i + 4]) {
      out += static_cast<char>(code);
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    if (end > 0) words.push_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

// "8:1", with or without a line's end.
std::optional<Disk> parse_device(std::string_view text) {
  Disk disk;
  const char* end = text.data() + text.size();
  const auto [colon, error] = std::from_chars(text.data(), end, disk.major);
  if (error != std::errc() || colon == end || *colon != ':') return std::nullopt;
  if (std::from_chars(colon + 1, end, disk.minor).ec != std::errc()) return std::nullopt;
  return disk;
}

std::optional<Mount> parse_mount(std::string_view line) {
  const std::size_t dash = line.find(" - ");
  if (dash == std::string_view::npos) return std::nullopt;
  const auto left = words_of(line.substr(0, dash)), right = words_of(line.substr(dash + 3));
  if (left.size() < 5 || right.size() < 2) return std::nullopt;
  Mount mount;
  (void)std::from_chars(left[0].data(), left[0].data() + left[0].size(), mount.id);
  const auto device = parse_device(left[2]);
  if (!device) return std::nullopt;
  mount.device = *device;
  mount.point = unescaped(left[4]);
  mount.type = right[0];
  mount.source = unescaped(right[1]);
  return mount;
}

std::vector<Mount> parse_mounts(std::string_view text) {
  std::vector<Mount> mounts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (auto mount = parse_mount(text.substr(0, end))) mounts.push_back(std::move(*mount));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return mounts;
}

class Finder {
 public:
  explicit Finder(const std::string& sys_root) : sys_root_(sys_root) {}

  // The whole disks behind a mount on one; none where it cannot be told.
  std::vector<Disk> behind(const Mount& mount) const {
    auto device = mount.device.major != 0 ? std::optional(mount.device) : source(mount.source);
    if (!device) return {};
    std::vector<Disk> devices = {*device};
    if (mount.type == "btrfs") add_btrfs_members(devices);
    std::vector<Disk> disks;
    for (const Disk& each : devices) {
      const auto disk = whole(each);
      if (!disk) return {};
      disks.push_back(*disk);
    }
    return disks;
  }

 private:
  std::string folder(const Disk& device) const { return sys_root_ + "/dev/block/" + device.name(); }

  std::optional<Disk> device_in(const std::string& path) const {
    const auto text = sys::read_file(AT_FDCWD, path, 64);
    return text ? parse_device(*text) : std::nullopt;
  }

  std::optional<Disk> whole(const Disk& device) const {
    const std::string path = folder(device);
    if (::access(path.c_str(), F_OK) != 0) return std::nullopt;
    if (::access((path + "/partition").c_str(), F_OK) != 0) return device;
    // The folder is a link; its parent is the disk's.
    return device_in(path + "/../dev");
  }

  // The device node that a file system was mounted from.
  std::optional<Disk> source(const std::string& path) const {
    if (!path.starts_with("/")) return std::nullopt;
    struct stat facts{};
    if (::stat(path.c_str(), &facts) == 0 && S_ISBLK(facts.st_mode))
      return Disk{gnu_dev_major(facts.st_rdev), gnu_dev_minor(facts.st_rdev)};
    // Without the node (a container's /dev has few) the kernel still knows the name.
    return device_in(sys_root_ + "/class/block/" + path.substr(path.rfind('/') + 1) + "/dev");
  }

  // A btrfs may lie on several devices, and mountinfo names one.
  void add_btrfs_members(std::vector<Disk>& devices) const {
    for (const std::string& uuid : entries(sys_root_ + "/fs/btrfs")) {
      std::vector<Disk> members;
      const std::string path = sys_root_ + "/fs/btrfs/" + uuid + "/devices";
      for (const std::string& name : entries(path)) {
        if (const auto member = device_in(path + "/" + name + "/dev")) members.push_back(*member);
      }
      if (std::find(members.begin(), members.end(), devices.front()) == members.end()) continue;
      devices = std::move(members);
      return;
    }
  }

  static std::vector<std::string> entries(const std::string& path) {
    std::vector<std::string> names;
    DIR* directory = ::opendir(path.c_str());
    if (directory == nullptr) return names;
    while (const dirent* entry = ::readdir(directory)) {
      if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    }
    ::closedir(directory);
    return names;
  }

  std::string sys_root_;
};

bool is_seen(const Mount& mount, const SeenTree& tree) {
  return mount.id == tree.mount_id || mount.point.starts_with(tree.path + "/");
}

void note(std::string& where, std::string_view words, const Mount& mount) {
  if (where.empty()) where.append(words).append(mount.type).append(" at ").append(mount.point);
}

}  // namespace

Result<SeenTree> seen_tree(int path_fd, bool writable) {
  struct statx facts{};
  if (::statx(path_fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &facts) != 0)
    return fail_errno("statx of what the sandbox sees");
  char path[PATH_MAX];
  const std::string link = "/proc/self/fd/" + std::to_string(path_fd);
  const ssize_t length = ::readlink(link.c_str(), path, sizeof path);
  if (length < 0) return fail_errno("readlink " + link);
  return SeenTree{std::string(path, static_cast<std::size_t>(length)), facts.stx_mnt_id, writable};
}

SeenDisks find_disks(std::span<const SeenTree> trees, const std::string& proc_root,
                     const std::string& sys_root) {
  SeenDisks seen;
  const auto text = sys::read_file(AT_FDCWD, proc_root + "/self/mountinfo", kMaxMountInfo);
  if (!text) {
    seen.unknown = "the mounts of this host cannot be read: " + text.error().message();
    return seen;
  }
  const std::vector<Mount> mounts = parse_mounts(*text);
  const Finder finder(sys_root);
  for (const SeenTree& tree : trees) {
    bool found = false;
    for (const Mount& mount : mounts) {
      if (!is_seen(mount, tree)) continue;
      found = found || mount.id == tree.mount_id;
      if (is_one_of(mount.type, kInMemory)) continue;
      const std::vector<Disk> disks = finder.behind(mount);
      if (disks.empty()) note(seen.unknown, kNoDisk, mount);
      seen.disks.insert(seen.disks.end(), disks.begin(), disks.end());
      if (!tree.writable || disks.empty()) continue;
      note(seen.writable, "", mount);
      if (!is_one_of(mount.type, kAccounted)) note(seen.unaccounted, "", mount);
    }
    if (!found && seen.unknown.empty()) seen.unknown = std::string(kNoDisk) + tree.path;
  }
  std::sort(seen.disks.begin(), seen.disks.end());
  seen.disks.erase(std::unique(seen.disks.begin(), seen.disks.end()), seen.disks.end());
  return seen;
}

Result<SeenDisks> disks_of(const Plan& plan, int run_directory_fd) {
  std::vector<SeenTree> trees;
  const auto add = [&](int path_fd, bool writable) -> Status {
    TRY_ASSIGN(SeenTree tree, seen_tree(path_fd, writable));
    trees.push_back(std::move(tree));
    return {};
  };
  for (const PlanRoot& root : image_roots(plan)) {
    // A mount itself has no disk; whoever reads it reads its file.
    const bool mount = root.form == PlanImage::kMount;
    TRY(add(plan.descriptors[mount ? root.file_fd : root.fd], false));
  }
  if (plan.image == PlanImage::kHost) {
    // What is not there, or a link into /usr, adds nothing.
    for (const char* path : {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}) {
      const Fd folder(::open(path, O_PATH | O_CLOEXEC));
      if (folder.valid()) TRY(add(folder.get(), false));
    }
    TRY(add(run_directory_fd, false));
  }
  for (const PlanGrant& grant : plan.grants) {
    if (!grant.cover) TRY(add(plan.descriptors[grant.fd], grant.writable));
  }
  if (lies_on_disk(plan)) TRY(add(plan.descriptors[plan.layer_fd], true));
  return find_disks(trees, "/proc", "/sys");
}

}  // namespace caisson::wall
