// Watching a directory tree: inotify(7) with a bounded number of watches, paths put together again.
//
// The kernel watches single directories, so each directory of the tree has a watch of its own,
// added when it appears. A pair of moves becomes one rename. Whatever is missed (the kernel's queue
// or the number of watches ran out) is told as an overflow: the peer must look again.

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "guest/files.h"

namespace caisson::guest {
namespace {

using proto::FileType;
using proto::Tag;
using proto::WatchEvent;

constexpr std::size_t kMaxWatches = 4096;
constexpr std::size_t kMaxDepth = 64;
constexpr std::uint32_t kMask = IN_CREATE | IN_MODIFY | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO |
                                IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR |
                                IN_DONT_FOLLOW | IN_EXCL_UNLINK;

class Watcher {
 public:
  Watcher(Fd inotify, bool recursive, WorkerLink& link)
      : inotify_(std::move(inotify)), recursive_(recursive), link_(link) {}

  Status start(const std::string& path) {
    top_ = ::inotify_add_watch(inotify_.get(), path.c_str(), kMask);
    if (top_ < 0) return fail_errno("watch " + path);
    TRY(add(path, 0, Found::kSilent));
    return tell(WatchEvent::kArmed, path, {}, true);
  }

  Status run() {
    for (;;) {
      pollfd entries[] = {{inotify_.get(), POLLIN, 0}, {link_.fd(), POLLIN, 0}};
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
  enum class Found { kSilent, kTold };
  struct Moved {
    std::uint32_t cookie = 0;
    std::string path;
    bool directory = false;
  };

  Status tell(WatchEvent event, const std::string& path, const std::string& target,
              bool directory) {
    proto::Fields fields;
    fields.put_u8(Tag::kWatchEvent, static_cast<std::uint8_t>(event)).put(Tag::kPath, path);
    if (!target.empty()) fields.put(Tag::kTarget, target);
    fields.put_u8(Tag::kFileType,
                  static_cast<std::uint8_t>(directory ? FileType::kDirectory : FileType::kRegular));
    return link_.event(fields);
  }

  // A watch for the directory and, where the tree is watched, for those below it. One that is gone
  // or unreadable is passed over.
  Status add(const std::string& path, std::size_t depth, Found found) {
    if (directories_.size() >= kMaxWatches || depth > kMaxDepth)
      return tell(WatchEvent::kOverflow, path, {}, true);
    const Found below_found = found;
    const int watch = ::inotify_add_watch(inotify_.get(), path.c_str(), kMask);
    if (watch < 0) return errno == ENOSPC ? tell(WatchEvent::kOverflow, path, {}, true) : Status();
    // One that has a watch already has told of its entries.
    if (!directories_.insert_or_assign(watch, path).second) found = Found::kSilent;
    if (!recursive_) return {};
    DIR* const directory = ::opendir(path.c_str());
    if (directory == nullptr) return {};
    std::vector<std::string> below;
    Status status;
    while (const dirent* entry = ::readdir(directory)) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      const bool is_directory = entry->d_type == DT_DIR;
      // It appeared before the watch did.
      if (found == Found::kTold) {
        status = tell(WatchEvent::kCreated, path + "/" + name, {}, is_directory);
        if (!status) break;
      }
      if (is_directory) below.push_back(path + "/" + name);
    }
    ::closedir(directory);
    TRY(std::move(status));
    for (const std::string& child : below) TRY(add(child, depth + 1, below_found));
    return {};
  }

  Status take(const char* bytes, std::size_t size) {
    Moved moved;
    for (std::size_t offset = 0; offset < size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(bytes + offset);
      offset += sizeof(inotify_event) + event->len;
      if (!moved.path.empty() &&
          ((event->mask & IN_MOVED_TO) == 0 || event->cookie != moved.cookie)) {
        TRY(tell(WatchEvent::kRemoved, moved.path, {}, moved.directory));
        moved.path.clear();
      }
      TRY(take_one(*event, moved));
    }
    if (!moved.path.empty()) return tell(WatchEvent::kRemoved, moved.path, {}, moved.directory);
    return {};
  }

  Status take_one(const inotify_event& event, Moved& moved) {
    if ((event.mask & IN_Q_OVERFLOW) != 0)
      return tell(WatchEvent::kOverflow, directories_[top_], {}, true);
    const auto found = directories_.find(event.wd);
    if (found == directories_.end()) return {};
    if ((event.mask & IN_IGNORED) != 0) {
      directories_.erase(found);
      return {};
    }
    if ((event.mask & (IN_DELETE_SELF | IN_MOVE_SELF)) != 0) {
      if (event.wd != top_) return {};  // its parent's watch tells it
      ended_ = true;
      return tell(WatchEvent::kRemoved, found->second, {}, true);
    }
    const bool directory = (event.mask & IN_ISDIR) != 0;
    const std::string path = event.len > 0 ? found->second + "/" + event.name : found->second;
    if ((event.mask & IN_MOVED_FROM) != 0) {
      moved = {event.cookie, path, directory};
      return {};
    }
    if ((event.mask & IN_MOVED_TO) != 0 && !moved.path.empty()) {
      TRY(tell(WatchEvent::kRenamed, moved.path, path, directory));
      if (directory) rename_below(moved.path, path);
      moved.path.clear();
      // What was moved before its watch could be placed has none yet.
      return directory && recursive_ ? add(path, 1, Found::kTold) : Status();
    }
    if ((event.mask & (IN_CREATE | IN_MOVED_TO)) != 0) {
      TRY(tell(WatchEvent::kCreated, path, {}, directory));
      if (directory && recursive_) return add(path, 1, Found::kTold);
      return {};
    }
    if ((event.mask & IN_MODIFY) != 0) return tell(WatchEvent::kModified, path, {}, directory);
    if ((event.mask & IN_DELETE) != 0) return tell(WatchEvent::kRemoved, path, {}, directory);
    if ((event.mask & IN_ATTRIB) != 0) return tell(WatchEvent::kAttributes, path, {}, directory);
    return {};
  }

  void rename_below(const std::string& from, const std::string& to) {
    for (auto& [watch, path] : directories_)
      if (path == from || path.starts_with(from + "/")) path = to + path.substr(from.size());
  }

  Fd inotify_;
  bool recursive_;
  WorkerLink& link_;
  std::map<int, std::string> directories_;
  int top_ = -1;
  bool ended_ = false;
};

}  // namespace

Status watch_worker(const proto::FieldReader& fields, WorkerLink& link) {
  TRY_ASSIGN(std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::uint64_t recursive, number_field(fields, Tag::kRecursive, 0));
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  Fd inotify(::inotify_init1(IN_CLOEXEC));
  if (!inotify.valid()) return fail_errno("inotify_init1");
  Watcher watcher(std::move(inotify), recursive != 0, link);
  TRY(watcher.start(path));
  return watcher.run();
}

}  // namespace caisson::guest
