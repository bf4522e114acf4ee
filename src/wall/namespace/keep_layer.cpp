#include "wall/namespace/keep_layer.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "image/layer_record.h"

namespace caisson::wall {
namespace {

// The id of N, as an id of U shows here.
std::uint32_t image_id(const IdMap& inner, std::uint32_t id) {
  for (const IdExtent& extent : inner) {
    if (id >= extent.outside && id - extent.outside < extent.count)
      return extent.inside + (id - extent.outside);
  }
  return image::kNoImageId;
}

class Recorder {
 public:
  Recorder(int upper_fd, const Ids& ids) : upper_fd_(upper_fd), ids_(ids) {
    ::clock_gettime(CLOCK_REALTIME, &before_);
    before_.tv_sec -= 1;
  }

  Result<image::LayerRecord> take() {
    directories_.emplace_back();
    while (!directories_.empty()) {
      const std::string path = std::move(directories_.back());
      directories_.pop_back();
      TRY(record_directory(path));
    }
    return std::move(record_);
  }

 private:
  Status record_directory(const std::string& path) {
    TRY_ASSIGN(Fd directory,
               sys::openat2(upper_fd_, path.empty() ? "." : path, O_RDONLY | O_DIRECTORY, 0,
                            RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
    struct stat facts{};
    if (::fstat(directory.get(), &facts) != 0) return fail_errno("stat of the layer's " + path);
    char value = 0;
    const bool opaque =
        ::fgetxattr(directory.get(), "user.overlay.opaque", &value, 1) == 1 && value == 'y';
    TRY(add(path, facts, opaque));
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(::fdopendir(directory.get()), ::closedir);
    if (entries == nullptr) return fail_errno("read the layer's " + path);
    const int directory_fd = directory.take();  // the stream's by now
    for (errno = 0; const dirent* entry = ::readdir(entries.get()); errno = 0) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      const std::string inside = path.empty() ? name : path + "/" + name;
      if (::fstatat(directory_fd, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0)
        return fail_errno("stat of the layer's " + inside);
      if (S_ISDIR(facts.st_mode)) {
        directories_.push_back(inside);
        continue;
      }
      if (S_ISREG(facts.st_mode)) {
        const timespec times[] = {before_, before_};
        if (::utimensat(directory_fd, name.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0 ||
            ::fstatat(directory_fd, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0)
          return fail_errno("set the times of the layer's " + inside);
      }
      TRY(add(inside, facts, false));
    }
    if (errno != 0) return fail_errno("read the layer's " + path);
    return {};
  }

  Status add(const std::string& path, const struct stat& facts, bool opaque) {
    image::RecordedEntry entry{.inode = facts.st_ino,
                               .mode = facts.st_mode,
                               .uid = image_id(ids_.inner_uids, facts.st_uid),
                               .gid = image_id(ids_.inner_gids, facts.st_gid),
                               .opaque = opaque};
    if (S_ISREG(facts.st_mode)) {
      entry.size = static_cast<std::uint64_t>(facts.st_size);
      entry.mtime_s = facts.st_mtim.tv_sec;
      entry.mtime_ns = static_cast<std::uint32_t>(facts.st_mtim.tv_nsec);
    }
    bytes_ += path.size() + sizeof entry;
    if (bytes_ > image::kMostRecord)
      return fail(Error::exhausted(
          "keep_layer: there are too many mount points to tell them from changes; allowed are " +
          std::to_string(image::kMostRecord >> 20) + " MiB of paths"));
    record_.emplace(path, entry);
    return {};
  }

  int upper_fd_;
  const Ids& ids_;
  timespec before_{};
  std::vector<std::string> directories_;
  image::LayerRecord record_;
  std::size_t bytes_ = 0;
};

}  // namespace

Status hand_out_layer(int layer_fd, const Ids& ids, Handouts& handouts) {
  const Fd upper(::openat(layer_fd, "upper", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!upper.valid()) return fail_errno("open the layer's upper directory");
  TRY_ASSIGN(const image::LayerRecord record, Recorder(upper.get(), ids).take());
  TRY_ASSIGN(handouts.record,
             sys::memory_file("caisson-layer-record", image::encode_record(record)));
  TRY_ASSIGN(const Fd mount, sys::open_tree(upper.get(), "", OPEN_TREE_CLONE));
  TRY(sys::mount_setattr(
      mount.get(), false,
      MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, 0));
  handouts.layer = Fd(::openat(mount.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!handouts.layer.valid()) return fail_errno("open the layer's own mount");
  return {};
}

}  // namespace caisson::wall
