#include "image/worker/pack.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/kernel_abi.h"
#include "base/sys.h"
#include "image/ids.h"
#include "image/reference.h"
#include "image/worker/entry_name.h"
#include "image/worker/tar_writer.h"

namespace caisson::image {
namespace {

constexpr std::string_view kWhiteout = ".wh.";
constexpr std::string_view kOpaque = ".wh..wh..opq";
constexpr std::size_t kReadSize = 256 * 1024;
constexpr std::size_t kMostLinkTarget = 4095;
constexpr std::uint64_t kBeneath = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;

bool has_attribute(int fd, const char* name) {
  char value = 0;
  return ::fgetxattr(fd, name, &value, 1) == 1 && value == 'y';
}

std::string joined(const std::string& directory, std::string_view name) {
  return directory.empty() ? std::string(name) : directory + "/" + std::string(name);
}

std::size_t depth_of(std::string_view path) {
  return 1 + static_cast<std::size_t>(std::count(path.begin(), path.end(), '/'));
}

class Packer {
 public:
  Packer(const PackInput& input, const TarSink& sink) : input_(input), sink_(sink) {}

  Result<PackReport> run() {
    TRY(enter("", {}, Written::kYes));
    while (!levels_.empty()) {
      Level& level = levels_.back();
      if (level.next == level.names.size()) {
        levels_.pop_back();
        continue;
      }
      TRY(take(level.path, std::move(level.names[level.next++])));
    }
    TRY(sink_(pax_end()));
    return report_;
  }

 private:
  // The root has no entry of its own.
  enum class Written : std::uint8_t { kNo, kYes };

  // A directory that is being read. Its own entry may still be missing: of one that set-up made,
  // until something below it is a change.
  struct Level {
    std::string path;
    std::vector<std::string> names;  // sorted
    std::size_t next = 0;
    PaxEntry entry;
    Written written = Written::kNo;
  };

  Result<struct stat> look(const std::string& path) const {
    struct stat facts{};
    TRY_ASSIGN(const Fd file,
               sys::openat2(input_.directory_fd, path, O_PATH | O_NOFOLLOW, 0, kBeneath));
    if (::fstat(file.get(), &facts) != 0) return fail_errno("stat of " + printable(path));
    return facts;
  }

  Result<Fd> open(const std::string& path, std::uint64_t flags) const {
    return sys::openat2(input_.directory_fd, path.empty() ? "." : path,
                        flags | O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0, kBeneath);
  }

  const RecordedEntry* recorded(const std::string& path) const {
    const auto found = input_.record.find(path);
    return found == input_.record.end() ? nullptr : &found->second;
  }

  Result<bool> is_opaque(int fd) const {
    if (input_.ask_opaque) return input_.ask_opaque(fd);
    return has_attribute(fd, "user.overlay.opaque");
  }

  // What set-up made and nobody has touched since.
  bool unchanged(const RecordedEntry* before, const struct stat& facts, bool opaque) const {
    if (before == nullptr) return false;
    RecordedEntry now{.inode = facts.st_ino,
                      .mode = facts.st_mode,
                      .uid = facts.st_uid,
                      .gid = facts.st_gid,
                      // Set-up cannot read root's own attributes; there the inode tells.
                      .opaque = input_.ask_opaque ? before->opaque : opaque};
    if (S_ISREG(facts.st_mode)) {
      now.size = static_cast<std::uint64_t>(facts.st_size);
      now.mtime_s = facts.st_mtim.tv_sec;
      now.mtime_ns = static_cast<std::uint32_t>(facts.st_mtim.tv_nsec);
    }
    return now == *before;
  }

  Status check_name(const std::string& path, std::string_view name) const {
    if (name.starts_with(kWhiteout))
      return fail(Error::invalid("'" + printable(path) +
                                 "': in a layer of an image a name cannot begin with .wh., which "
                                 "says there that something was removed"));
    if (path.size() > kMaxEntryName || depth_of(path) > kMaxEntryDepth)
      return fail(Error::invalid("'" + printable(path) + "' has " + std::to_string(path.size()) +
                                 " bytes and lies " + std::to_string(depth_of(path)) +
                                 " levels deep; an image can have paths of " +
                                 std::to_string(kMaxEntryName) + " bytes and " +
                                 std::to_string(kMaxEntryDepth) + " levels"));
    return {};
  }

  Result<PaxEntry> entry_of(const std::string& path, const struct stat& facts) const {
    if (facts.st_uid >= kImageIds || facts.st_gid >= kImageIds)
      return fail(Error::invalid("'" + printable(path) + "' belongs to " +
                                 std::to_string(facts.st_uid) + ":" + std::to_string(facts.st_gid) +
                                 "; an image may use the ids 0 to 65535"));
    return PaxEntry{.path = path,
                    .mode = facts.st_mode & 07777,
                    .uid = facts.st_uid,
                    .gid = facts.st_gid,
                    .modified = facts.st_mtim};
  }

  Status count_entry() {
    if (++report_.entries <= input_.most_entries) return {};
    return fail(Error::exhausted("the changes are more than " +
                                 std::to_string(input_.most_entries) +
                                 " entries, the most that is allowed"));
  }

  // Writes an entry, after those of the directories above it that are still missing.
  Status put(const PaxEntry& entry) {
    for (Level& level : levels_) {
      if (level.written == Written::kYes) continue;
      level.written = Written::kYes;
      TRY(count_entry());
      TRY(sink_(pax_header(level.entry)));
    }
    TRY(count_entry());
    return sink_(pax_header(entry));
  }

  // A marker is an empty file that belongs to nobody in particular.
  Status put_marker(const std::string& directory, const std::string& name) {
    if (name.size() > kMaxEntryComponent || joined(directory, name).size() > kMaxEntryName)
      return fail(Error::invalid(
          "'" + printable(joined(directory, name)) +
          "' would say that something was removed, and is longer than a name can be: what has a "
          "name of more than " +
          std::to_string(kMaxEntryComponent - kWhiteout.size()) +
          " bytes cannot be removed from an image"));
    return put({.path = joined(directory, name), .mode = 0644});
  }

  Status enter(const std::string& path, PaxEntry entry, Written written) {
    TRY_ASSIGN(Fd directory, open(path, O_DIRECTORY));
    TRY_ASSIGN(const bool opaque, is_opaque(directory.get()));
    if (written == Written::kNo) {
      struct stat facts{};
      if (::fstat(directory.get(), &facts) != 0) return fail_errno("stat of " + printable(path));
      if (!unchanged(recorded(path), facts, opaque)) {
        TRY(put(entry));
        written = Written::kYes;
      }
    }
    TRY_ASSIGN(std::vector<std::string> names, names_in(std::move(directory), path));
    levels_.push_back(
        {.path = path, .names = std::move(names), .entry = std::move(entry), .written = written});
    const RecordedEntry* before = recorded(path);
    const bool was_opaque = before != nullptr && before->opaque;
    if (opaque && !was_opaque && !path.empty()) TRY(put_marker(path, std::string(kOpaque)));
    return {};
  }

  Result<std::vector<std::string>> names_in(Fd directory, const std::string& path) {
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(::fdopendir(directory.get()), ::closedir);
    if (stream == nullptr) return fail_errno("read " + printable(path));
    (void)directory.take();  // the stream's by now
    std::vector<std::string> names;
    for (errno = 0; const dirent* entry = ::readdir(stream.get()); errno = 0) {
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      if (++seen_ > input_.most_entries)
        return fail(Error::exhausted("the layer holds more than " +
                                     std::to_string(input_.most_entries) +
                                     " names, the most that is allowed"));
      names.emplace_back(name);
    }
    if (errno != 0) return fail_errno("read " + printable(path));
    std::sort(names.begin(), names.end());
    return names;
  }

  // `directory` is a copy: levels_ grows.
  Status take(const std::string directory, const std::string name) {
    const std::string path = joined(directory, name);
    TRY(check_name(path, name));
    TRY_ASSIGN(const struct stat facts, look(path));
    if (S_ISCHR(facts.st_mode) && facts.st_rdev == ::makedev(0, 0))
      return put_marker(directory, std::string(kWhiteout) + name);
    TRY_ASSIGN(PaxEntry entry, entry_of(path, facts));
    switch (facts.st_mode & S_IFMT) {
      case S_IFDIR:
        entry.type = PaxType::kDirectory;
        return enter(path, std::move(entry), Written::kNo);
      case S_IFREG:
        return take_file(directory, name, std::move(entry), facts);
      case S_IFLNK: {
        entry.type = PaxType::kSymlink;
        if (unchanged(recorded(path), facts, false)) return {};
        TRY_ASSIGN(entry.link, link_at(path));
        return put(entry);
      }
      case S_IFIFO:
        entry.type = PaxType::kFifo;
        if (unchanged(recorded(path), facts, false)) return {};
        return put(entry);
      default:
        return {};  // a socket ends with whoever made it; devices are not an image's
    }
  }

  Result<std::string> link_at(const std::string& path) const {
    TRY_ASSIGN(const Fd link,
               sys::openat2(input_.directory_fd, path, O_PATH | O_NOFOLLOW, 0, kBeneath));
    std::string target(kMostLinkTarget + 1, '\0');
    const ssize_t length = ::readlinkat(link.get(), "", target.data(), target.size());
    if (length <= 0) return fail_errno("readlink " + printable(path));
    if (static_cast<std::size_t>(length) > kMostLinkTarget)
      return fail(Error::invalid("'" + printable(path) + "': the link's target is too long"));
    target.resize(static_cast<std::size_t>(length));
    return target;
  }

  Status take_file(const std::string& directory, const std::string& name, PaxEntry entry,
                   const struct stat& facts) {
    // Newer overlays mark what was removed so in the layers below; ours never has it, an image
    // could have been made with it.
    TRY_ASSIGN(const Fd file, open(entry.path, 0));
    struct stat opened{};
    if (::fstat(file.get(), &opened) != 0) return fail_errno("stat of " + printable(entry.path));
    if (!S_ISREG(opened.st_mode) || opened.st_ino != facts.st_ino) return fail(changed(entry.path));
    if (opened.st_size == 0 && has_whiteout_attribute(file.get()))
      return put_marker(directory, std::string(kWhiteout) + name);
    if (unchanged(recorded(entry.path), facts, false)) return {};
    if (facts.st_nlink > 1) {
      const auto [first, is_new] = links_.try_emplace(facts.st_ino, entry.path);
      if (!is_new) {
        entry.type = PaxType::kHardLink;
        entry.link = first->second;
        return put(entry);
      }
    }
    entry.size = static_cast<std::uint64_t>(facts.st_size);
    if (entry.size > input_.most_bytes || report_.bytes > input_.most_bytes - entry.size)
      return fail(
          Error::exhausted("'" + printable(entry.path) + "' of " + std::to_string(entry.size) +
                           " bytes makes the layer larger than " +
                           std::to_string(input_.most_bytes) + " bytes, the most that is allowed"));
    report_.bytes += entry.size;
    TRY(put(entry));
    return copy(file.get(), entry);
  }

  static bool has_whiteout_attribute(int fd) {
    char value = 0;
    return ::fgetxattr(fd, "user.overlay.whiteout", &value, 1) >= 0;
  }

  static Error changed(const std::string& path) {
    return {Code::kAborted,
            "'" + printable(path) + "' changes while it is packed: does the sandbox still run?"};
  }

  Status copy(int file_fd, const PaxEntry& entry) {
    for (std::uint64_t left = entry.size; left > 0;) {
      const std::size_t wanted = static_cast<std::size_t>(std::min<std::uint64_t>(left, kReadSize));
      const ssize_t got = TEMP_FAILURE_RETRY(::read(file_fd, buffer_.data(), wanted));
      if (got < 0) return fail_errno("read " + printable(entry.path));
      if (got == 0) return fail(changed(entry.path));
      TRY(sink_(std::string_view(buffer_.data(), static_cast<std::size_t>(got))));
      left -= static_cast<std::uint64_t>(got);
    }
    return sink_(std::string(pax_padding(entry.size), '\0'));
  }

  const PackInput& input_;
  const TarSink& sink_;
  PackReport report_;
  std::uint64_t seen_ = 0;
  std::vector<Level> levels_;
  std::map<std::uint64_t, std::string> links_;  // files with several names: inode, first path
  std::vector<char> buffer_ = std::vector<char>(kReadSize);
};

}  // namespace

Result<PackReport> pack(const PackInput& input, const TarSink& sink) {
  return Packer(input, sink).run();
}

}  // namespace caisson::image
