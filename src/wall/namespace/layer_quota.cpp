#include "wall/namespace/layer_quota.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/kernel_abi.h"
#include "base/loop_device.h"
#include "base/sys.h"
#include "wall/namespace/ext4_image.h"

namespace caisson::wall {
namespace {

constexpr std::uint64_t kMostBytes = 15ull << 40;
// What the set-up puts into a root, directories above all, is not taken from what was asked for.
constexpr std::uint64_t kSetUpBytes = 32 * kExt4Block;
static_assert(kMostBytes + kSetUpBytes <= kMostExt4Bytes);
// Without a limit of their own there may be as many files as mkfs would allow for.
constexpr std::uint64_t kBytesPerInode = 16384;

// In front of what was met.
constexpr const char* kRefusal = "layer: quota cannot be had here (allowed is layer: tmpfs)";

std::string path_of(int fd) {
  char path[4096];
  const ssize_t length =
      ::readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path);
  return {path, static_cast<std::size_t>(std::max<ssize_t>(length, 0))};
}

// The system call `what` has just failed.
std::unexpected<Error> refuse(const std::string& what, int error_number) {
  return fail(Error::syscall(what, error_number).with(kRefusal));
}

// A file in memory would make the limit a second one of memory that no group holds.
Result<std::uint64_t> room_on_disk(int directory_fd) {
  struct statfs facts{};
  if (::fstatfs(directory_fd, &facts) != 0) return fail_errno("fstatfs of the layers' directory");
  if (lies_in_memory(static_cast<std::uint32_t>(facts.f_type)))
    return fail(Error::precondition(
        "layer: quota keeps what is written on a disk, and " + path_of(directory_fd) +
        " lies in memory; allowed are layer: tmpfs, or a CAISSON_STATE_DIR on a disk"));
  return static_cast<std::uint64_t>(facts.f_bavail) * static_cast<std::uint64_t>(facts.f_bsize);
}

Result<Fd> make_file(int directory_fd, std::uint64_t size) {
  Fd file(::openat(directory_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!file.valid()) return refuse("a file without a name in " + path_of(directory_fd), errno);
  if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0)
    return refuse("a file of " + std::to_string(size) + " bytes in " + path_of(directory_fd),
                  errno);
  return file;
}

Ext4Identity identity_of(const QuotaWish& wish) {
  Ext4Identity identity;
  identity.root_uid = wish.root_uid;
  identity.root_gid = wish.root_gid;
  (void)!::getrandom(identity.uuid.data(), identity.uuid.size(), 0);
  (void)!::getrandom(identity.hash_seed.data(), identity.hash_seed.size(), 0);
  // A random one by its own word (version 4), as tools expect.
  identity.uuid[6] = static_cast<std::uint8_t>((identity.uuid[6] & 0x0f) | 0x40);
  identity.uuid[8] = static_cast<std::uint8_t>((identity.uuid[8] & 0x3f) | 0x80);
  return identity;
}

}  // namespace

bool lies_in_memory(std::uint32_t file_system) {
  constexpr std::uint32_t kRamfs = 0x858458f6;
  return file_system == TMPFS_MAGIC || file_system == kRamfs;
}

Result<QuotaLayer> make_quota_layer(const QuotaWish& wish) {
  TRY_ASSIGN(const std::uint64_t room, room_on_disk(wish.directory_fd));
  if (wish.bytes > kMostBytes)
    return fail(Error::invalid("limits.disk: found " + std::to_string(wish.bytes) +
                               " bytes; allowed is at most 15TiB with layer: quota"));
  const std::uint64_t bytes =
      wish.bytes != 0 ? wish.bytes : std::clamp(room, kExt4Block, kMostBytes);
  const std::uint64_t inodes =
      wish.inodes != 0 ? wish.inodes
                       : std::clamp<std::uint64_t>(bytes / kBytesPerInode, 1024, kMostExt4Inodes);
  const Ext4Layout layout = plan_ext4(bytes + kSetUpBytes, inodes);
  TRY_ASSIGN(Fd file, make_file(wish.directory_fd, layout.image_bytes()));
  auto attached = attach_loop(file.get(), {.block_size = kExt4Block});
  if (!attached) return fail(std::move(attached).error().with(kRefusal));
  LoopDevice loop = std::move(attached).value();
  file.reset();
  // Through the device, not the file: what the file holds is flushed to disk when it is attached.
  TRY(write_ext4(loop.device.get(), layout, identity_of(wish)));
  // Some kernels mount nothing that anybody has open for writing; somebody must hold it, though.
  Fd held(::open(loop.path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!held.valid()) return refuse("open " + loop.path, errno);
  loop.device = std::move(held);
  // Besides what layer_quota.h says: blocks become a file's at once and not only when they have
  // been written (dioread_lock), which matters to nobody who never sees the file system after a
  // crash; and no thread looks at inode tables or bitmaps in advance.
  const sys::MountOption options[] = {{"source", loop.path.c_str()},
                                      {"nobarrier", nullptr},
                                      {"dioread_lock", nullptr},
                                      {"noinit_itable", nullptr},
                                      {"no_prefetch_block_bitmaps", nullptr}};
  QuotaLayer layer;
  auto mount = sys::make_mount("ext4", options, wish.attributes);
  if (!mount) return fail(std::move(mount).error().with(kRefusal));
  layer.mount = std::move(mount).value();
  const auto set = [&](const char* setting, const char* value) {
    const std::string device = loop.path.substr(sizeof "/dev/" - 1);
    (void)sys::write_file(AT_FDCWD, "/sys/fs/ext4/" + device + "/" + setting, value);
  };
  // The kernel's log need not hear of every sandbox's end, nor of what is dropped at it: errors of
  // the file system are counted apart.
  set("msg_ratelimit_burst", "0");
  // The first block that is taken would bring the bitmaps of 32 groups into memory, of which a
  // layer of many inodes has that many, and a sandbox as a rule uses one.
  set("mb_prefetch", "1");
  layer.root = Fd(::openat(layer.mount.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!layer.root.valid()) return fail_errno("open the layer");
  TRY_ASSIGN(layer.before, use_of_layer(layer.root.get()));
  return layer;
}

void abandon_layer(QuotaLayer& layer) {
  if (layer.root.valid()) {
    std::uint32_t how = EXT4_GOING_FLAGS_NOLOGFLUSH;
    (void)::ioctl(layer.root.get(), EXT4_IOC_SHUTDOWN, &how);
  }
  layer.root.reset();
  layer.mount.reset();
}

}  // namespace caisson::wall
