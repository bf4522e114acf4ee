#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "base/file_time.h"
#include "base/kernel_abi.h"
#include "base/sys.h"
#include "box/file_client.h"
#include "box/files.h"
#include "box/inside_entry.h"

namespace caisson::box {
namespace {

constexpr std::size_t kReadSize = 128 * 1024;

class CopyIn {
 public:
  CopyIn(FileAccess& client, std::uint32_t extra_mode) : client_(client), extra_mode_(extra_mode) {}

  Status file(int fd, const std::string& inside, const struct stat& info) {
    std::string buffer(kReadSize, '\0');
    return client_.write(inside, (info.st_mode & 0777) | (extra_mode_ & 0666),
                         to_nanoseconds(info.st_mtim), [&]() -> Result<std::string> {
                           for (;;) {
                             const ssize_t count = ::read(fd, buffer.data(), buffer.size());
                             if (count < 0 && errno == EINTR) continue;
                             if (count < 0) return fail_errno("read for " + inside);
                             return buffer.substr(0, static_cast<std::size_t>(count));
                           }
                         });
  }

  // What is in the directory; the directory itself is there already.
  Status contents(int directory_fd, const std::string& inside, std::size_t depth) {
    if (depth > kMostDepth)
      return fail(Error::exhausted(inside + ": folders are nested more than " +
                                   std::to_string(kMostDepth) + " deep"));
    Fd again(::openat(directory_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!again.valid()) return fail_errno("open folder for " + inside);
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(::fdopendir(again.get()), ::closedir);
    if (directory == nullptr) return fail_errno("fdopendir");
    static_cast<void>(again.take());
    errno = 0;
    while (const dirent* entry = ::readdir(directory.get())) {
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      TRY(one(directory_fd, name, inside + "/" + name, depth));
      errno = 0;
    }
    if (errno != 0) return fail_errno("read folder for " + inside);
    return {};
  }

  Status directory(int fd, const std::string& inside, const struct stat& info, std::size_t depth) {
    // Its owner must be able to fill it.
    TRY(client_.make_directory(inside, (info.st_mode & 0777) | 0700));
    directories_.emplace_back(inside, to_nanoseconds(info.st_mtim));
    // Not left to mkdir, which the umask would narrow.
    if (extra_mode_ != 0) TRY(client_.change_mode(inside, extra_mode_));
    return contents(fd, inside, depth);
  }

  // Waits for everything that was sent. Only then: what is made in a directory changes its time.
  Status finish() {
    TRY(client_.settle());
    for (const auto& [inside, modified] : directories_) TRY(client_.set_modified(inside, modified));
    return client_.settle();
  }

 private:
  Status one(int directory_fd, const std::string& name, const std::string& inside,
             std::size_t depth) {
    if (++entries_ > kMostEntries)
      return fail(Error::exhausted("more than " + std::to_string(kMostEntries) +
                                   " files, which is more than can be copied"));
    const Fd found(::openat(directory_fd, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    if (!found.valid()) {
      if (errno == ENOENT) return {};  // gone since the folder was read
      return fail_errno("open for " + inside);
    }
    struct stat info = {};
    if (::fstat(found.get(), &info) != 0) return fail_errno("fstat for " + inside);
    if (S_ISLNK(info.st_mode)) {
      char target[4096];
      const ssize_t length = ::readlinkat(found.get(), "", target, sizeof target);
      if (length <= 0) return fail_errno("readlink for " + inside);
      return client_.symlink(inside, {target, static_cast<std::size_t>(length)});
    }
    if (S_ISDIR(info.st_mode)) return directory(found.get(), inside, info, depth + 1);
    if (!S_ISREG(info.st_mode))
      return fail(Error::invalid("the source of " + inside +
                                 " is neither file, folder nor link and cannot be copied"));
    auto opened = reopen(found.get(), O_RDONLY | O_NONBLOCK);
    if (!opened.has_value()) return fail(std::move(opened).error().with("for " + inside));
    return file(opened->get(), inside, info);
  }

  FileAccess& client_;
  std::uint32_t extra_mode_;
  std::size_t entries_ = 0;
  std::vector<std::pair<std::string, std::uint64_t>> directories_;  // path inside, time
};

Status copy_as(FileAccess& client, const HostPath& source, const std::string& inside,
               std::uint32_t extra_mode) {
  CopyIn copy(client, extra_mode);
  struct stat info = {};
  if (::fstat(source.fd.get(), &info) != 0) return fail_errno("fstat");
  if (source.directory) {
    TRY(copy.directory(source.fd.get(), inside, info, 1));
  } else {
    TRY_ASSIGN(const Fd file, reopen(source.fd.get(), O_RDONLY | O_NONBLOCK));
    if (const std::size_t slash = inside.rfind('/'); slash > 0)
      TRY(client.make_directory(inside.substr(0, slash), 0755));
    TRY(copy.file(file.get(), inside, info));
  }
  return copy.finish();
}

}  // namespace

Status copy_in(FileAccess& files, const HostPath& source, const std::string& name,
               const std::string& inside, const std::string& user, Existing existing) {
  files.set_user(user);
  std::string place = inside;
  if (!source.directory || existing == Existing::kInto) {
    TRY_ASSIGN(const auto there, files.look(inside));
    if (there.has_value() && there->type == proto::FileType::kDirectory && !name.empty())
      place += (place.ends_with('/') ? "" : "/") + name;
  }
  auto copied = copy_as(files, source, place, 0);
  if (copied.has_value() || copied.error().code() != Code::kPermissionDenied) return copied;
  // A folder such as /workspace can only be made by the inside root, who cannot give it away. A
  // host file that we may not read fails here again, with the same words.
  static_cast<void>(files.settle());
  files.set_user("0");
  auto by_root = copy_as(files, source, place, 0777);
  if (by_root.has_value() || by_root.error().code() != Code::kPermissionDenied) return by_root;
  return copied;
}

Status copy_in(Connection& connection, const HostPath& source, const std::string& name,
               const std::string& inside, const std::string& user, Existing existing) {
  FileClient client(connection, user);
  return copy_in(client, source, name, inside, user, existing);
}

}  // namespace caisson::box
