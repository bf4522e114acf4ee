// Watching a directory tree: inotify(7) with a bounded number of watches, names put together again.
//
// The kernel watches single directories, so each directory of the tree has a watch of its own,
// added when it appears; what was made in it before that is found by looking, and told as created.
// A pair of moves becomes one rename. Whatever is missed (the kernel's queue or the number of
// watches ran out) is told as an overflow: the peer must look again.

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "guest/file_details.h"
#include "guest/files.h"

namespace caisson::guest {
namespace {

using proto::FileType;
using proto::Tag;
using proto::WatchEvent;

constexpr std::size_t kMaxWatches = 4096;
constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxFound = 4096;
constexpr std::uint32_t kTopMask = IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
                                   IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR |
                                   IN_EXCL_UNLINK;
constexpr std::uint32_t kMask = kTopMask | IN_DONT_FOLLOW;

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

struct WatchOptions {
  std::string path;  // absolute, without a slash at its end
  bool recursive = false;
  Details details;
};

class Watcher {
 public:
  Watcher(Fd inotify, WatchOptions options, WorkerLink& link)
      : inotify_(std::move(inotify)), options_(std::move(options)), link_(link) {}

  Status start() {
    top_ = ::inotify_add_watch(inotify_.get(), options_.path.c_str(), kTopMask);
    if (top_ < 0) return fail(directory_error("watch", options_.path, errno));
    directories_.emplace(top_, "");
    if (options_.recursive) TRY(look_into("", 0, Told::kNothing, Told::kNothing));
    return tell(WatchEvent::kArmed, "", kDirectory);
  }

  Status run() {
    for (;;) {
      pollfd entries[] = {{inotify_.get(), POLLIN, 0}, {link_.fd(), POLLIN, 0}};
      // With an empty queue nothing that was found by looking is still to be told by the kernel.
      if (!found_.empty() && ::poll(entries, 1, 0) == 0) found_.clear();
      if (::poll(entries, 2, -1) < 0) {
        if (errno == EINTR) continue;
        return fail_errno("poll");
      }
      // The peer sends nothing on a watch; what arrives is the end.
      if (entries[1].revents != 0) return fail(Error(Code::kCancelled, "the watch was given up"));
      if (entries[0].revents == 0) continue;
      alignas(inotify_event) char bytes[64 * 1024];
      const ssize_t count = ::read(inotify_.get(), bytes, sizeof(bytes));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail_errno("read inotify");
      TRY(take(bytes, static_cast<std::size_t>(count)));
      if (ended_) return {};
    }
  }

 private:
  static constexpr FileType kDirectory = FileType::kDirectory;
  // What the peer has been told of a directory: nothing of what is in it (and it need not be, since
  // it was there before the watch), or that it is new.
  enum class Told { kNothing, kCreated };

  // One half of a move.
  struct Moved {
    std::uint32_t cookie = 0;
    std::string name;  // empty: none waits for its other half
    FileType type = FileType::kRegular;
  };

  static std::string below(const std::string& directory, std::string_view name) {
    return directory.empty() ? std::string(name) : directory + '/' + std::string(name);
  }
  std::string path_of(const std::string& name) const {
    return name.empty() ? options_.path : join(options_.path, name);
  }

  Status tell(WatchEvent event, const std::string& name, FileType type,
              const std::string& target = {}) {
    const std::string path = path_of(name);
    proto::Fields fields;
    fields.put_u8(Tag::kWatchEvent, static_cast<std::uint8_t>(event))
        .put(Tag::kPath, path)
        .put(Tag::kName, name);
    if (!target.empty()) fields.put(Tag::kTarget, path_of(target)).put(Tag::kTargetName, target);
    const bool is_there = event == WatchEvent::kCreated || event == WatchEvent::kModified ||
                          event == WatchEvent::kAttributes;
    struct stat status{};
    if (options_.details.any() && is_there && ::lstat(path.c_str(), &status) == 0) {
      put_status(fields, status);
      options_.details.put(fields, {AT_FDCWD, path, path}, status);
    } else {
      fields.put_u8(Tag::kFileType, static_cast<std::uint8_t>(type));
    }
    return link_.event(fields);
  }

  // Once for all that is passed over at a time.
  Status tell_overflow() {
    if (std::exchange(overflow_told_, true)) return {};
    return tell(WatchEvent::kOverflow, "", kDirectory);
  }

  // A watch for a directory and for those below it. One that is gone or unreadable is passed over.
  Status add(const std::string& name, std::size_t depth, Told told) {
    if (directories_.size() >= kMaxWatches || depth > kMaxDepth) return tell_overflow();
    const int watch = ::inotify_add_watch(inotify_.get(), path_of(name).c_str(), kMask);
    if (watch < 0) return errno == ENOSPC ? tell_overflow() : Status();
    // One that has a watch already has told of its entries; but those below it may have none, where
    // the directory moved away before they could get one.
    const bool is_new = directories_.insert_or_assign(watch, name).second;
    return look_into(name, depth, is_new ? told : Told::kNothing, told);
  }

  Status look_into(const std::string& name, std::size_t depth, Told told, Told told_below) {
    std::vector<std::string> directories;
    {
      const std::unique_ptr<DIR, CloseDirectory> stream(::opendir(path_of(name).c_str()));
      if (stream == nullptr) return {};
      while (const dirent* entry = ::readdir(stream.get())) {
        const std::string_view last = entry->d_name;
        if (last == "." || last == "..") continue;
        const bool is_directory = is_directory_entry(::dirfd(stream.get()), *entry);
        const std::string child = below(name, last);
        // It appeared before the watch did, or a moment after it and then comes again.
        if (told == Told::kCreated) {
          TRY(tell(WatchEvent::kCreated, child, is_directory ? kDirectory : FileType::kRegular));
          if (found_.size() < kMaxFound) found_.insert(child);
        }
        // More than can have a watch need not be kept.
        if (is_directory && directories.size() <= kMaxWatches) directories.push_back(child);
      }
    }
    for (const std::string& child : directories) TRY(add(child, depth + 1, told_below));
    return {};
  }

  static bool is_directory_entry(int directory_fd, const dirent& entry) {
    if (entry.d_type != DT_UNKNOWN) return entry.d_type == DT_DIR;
    struct stat status{};
    return ::fstatat(directory_fd, entry.d_name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(status.st_mode);
  }

  Status take(const char* bytes, std::size_t size) {
    overflow_told_ = false;
    Moved moved;
    for (std::size_t offset = 0; offset < size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(bytes + offset);
      offset += sizeof(inotify_event) + event->len;
      if ((event->mask & IN_MOVED_TO) == 0 || event->cookie != moved.cookie)
        TRY(tell_moved_out(moved));
      TRY(take_one(*event, moved));
    }
    return tell_moved_out(moved);
  }

  // What was moved to where nobody watches.
  Status tell_moved_out(Moved& moved) {
    if (moved.name.empty()) return {};
    const Moved out = std::exchange(moved, {});
    if (out.type == kDirectory) forget_below(out.name);
    return tell(WatchEvent::kRenamed, out.name, out.type);
  }

  Status take_one(const inotify_event& event, Moved& moved) {
    if ((event.mask & IN_Q_OVERFLOW) != 0) return tell_overflow();
    const auto found = directories_.find(event.wd);
    if (found == directories_.end()) return {};
    if ((event.mask & IN_IGNORED) != 0) {
      directories_.erase(found);
      return {};
    }
    const bool of_itself = event.len == 0;
    if (of_itself && event.wd != top_) return {};  // its parent's watch tells it
    if ((event.mask & (IN_DELETE_SELF | IN_MOVE_SELF)) != 0) {
      ended_ = true;
      return tell(WatchEvent::kRemoved, "", kDirectory);
    }
    const FileType type = (event.mask & IN_ISDIR) != 0 ? kDirectory : FileType::kRegular;
    const std::string name = of_itself ? found->second : below(found->second, event.name);
    if ((event.mask & IN_MOVED_FROM) != 0) {
      found_.erase(name);
      moved = {event.cookie, name, type};
      return {};
    }
    if ((event.mask & IN_MOVED_TO) != 0 && !moved.name.empty()) {
      const Moved from = std::exchange(moved, {});
      TRY(tell(WatchEvent::kRenamed, from.name, type, name));
      if (type == kDirectory) rename_below(from.name, name);
      // What was moved before its watch could be placed has none yet.
      return watch_new(name, type);
    }
    if ((event.mask & (IN_CREATE | IN_MOVED_TO)) != 0) {
      if (found_.erase(name) == 0) TRY(tell(WatchEvent::kCreated, name, type));
      return watch_new(name, type);
    }
    if ((event.mask & IN_MODIFY) != 0) return tell(WatchEvent::kModified, name, type);
    if ((event.mask & IN_DELETE) != 0) {
      found_.erase(name);
      return tell(WatchEvent::kRemoved, name, type);
    }
    if ((event.mask & IN_ATTRIB) != 0) return tell(WatchEvent::kAttributes, name, type);
    return {};
  }

  Status watch_new(const std::string& name, FileType type) {
    if (type != kDirectory || !options_.recursive) return {};
    return add(name, 1, Told::kCreated);
  }

  static bool is_in(const std::string& name, const std::string& directory) {
    return name == directory || name.starts_with(directory + "/");
  }
  void rename_below(const std::string& from, const std::string& to) {
    for (auto& [watch, name] : directories_)
      if (is_in(name, from)) name = to + name.substr(from.size());
  }
  // What happens in a tree that has left is nobody's business here any more.
  void forget_below(const std::string& directory) {
    std::erase_if(directories_, [&](const auto& entry) {
      if (!is_in(entry.second, directory)) return false;
      ::inotify_rm_watch(inotify_.get(), entry.first);
      return true;
    });
  }

  Fd inotify_;
  WatchOptions options_;
  WorkerLink& link_;
  std::map<int, std::string> directories_;  // names of those that have a watch, "" of the top
  // Told as created because they were found by looking; the kernel may be about to tell them too.
  std::set<std::string> found_;
  int top_ = -1;
  bool overflow_told_ = false;
  bool ended_ = false;
};

}  // namespace

bool is_network_file_system(std::uint64_t type) {
  constexpr std::uint64_t kTypes[] = {
      0x6969,      // NFS
      0x517b,      // SMB
      0xff534d42,  // CIFS
      0xfe534d42,  // SMB2
      0x00c36400,  // Ceph
      0x01021997,  // 9P
      0x5346414f,  // AFS
      0x6b414653,  // kAFS
      0x73757245,  // Coda
      0x0bd00bd0,  // Lustre
      0x47504653,  // GPFS
      0x65735546,  // FUSE: what is behind it is not known
  };
  return std::ranges::find(kTypes, type) != std::end(kTypes);
}

Status watch_worker(const proto::FieldReader& fields, WorkerLink& link) {
  WatchOptions options;
  TRY_ASSIGN(options.path, path_field(fields, Tag::kPath));
  while (options.path.size() > 1 && options.path.ends_with('/')) options.path.pop_back();
  TRY_ASSIGN(const std::uint64_t recursive, number_field(fields, Tag::kRecursive, 0));
  TRY_ASSIGN(const std::uint64_t network, number_field(fields, Tag::kAllowNetworkMounts, 0));
  TRY_ASSIGN(options.details, Details::wanted(fields));
  options.recursive = recursive != 0;
  struct statfs facts{};
  // The kernel's numbers are of 32 bits, its type is not.
  if (network == 0 && ::statfs(options.path.c_str(), &facts) == 0 &&
      is_network_file_system(static_cast<std::uint32_t>(facts.f_type)))
    return fail(Error::invalid("watch " + options.path +
                               ": it lies on a network file system, where changes that others make "
                               "are not noticed"));
  Fd inotify(::inotify_init1(IN_CLOEXEC));
  if (!inotify.valid()) return fail_errno("inotify_init1");
  Watcher watcher(std::move(inotify), std::move(options), link);
  TRY(watcher.start());
  return watcher.run();
}

}  // namespace caisson::guest
