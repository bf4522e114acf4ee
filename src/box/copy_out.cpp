#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "base/file_time.h"
#include "base/kernel_abi.h"
#include "base/sys.h"
#include "box/file_client.h"
#include "box/files.h"
#include "box/inside_entry.h"

namespace caisson::box {
namespace {

constexpr std::uint64_t kBeneath =
    RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
constexpr std::size_t kBlock = 4096;

Result<std::string> temporary_name() {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof random, 0) != sizeof random) return fail_errno("getrandom");
  std::string name = ".caisson-";
  for (unsigned i = 0; i < 16; ++i) name += "0123456789abcdef"[(random >> (4 * i)) & 15];
  return name;
}

// A new file beside its place: removed again unless it takes the place.
class PendingFile {
 public:
  static Result<PendingFile> create(int directory_fd, bool executable) {
    PendingFile pending;
    pending.directory_fd_ = directory_fd;
    TRY_ASSIGN(pending.name_, temporary_name());
    // The caller's umask applies; whatever else the sandbox set (set-id bits) is left out.
    pending.fd_ = Fd(::openat(directory_fd, pending.name_.c_str(),
                              O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                              executable ? 0777 : 0666));
    if (!pending.fd_.valid()) return fail_errno("create a file");
    return pending;
  }
  PendingFile(PendingFile&& other) noexcept
      : directory_fd_(std::exchange(other.directory_fd_, -1)),
        fd_(std::move(other.fd_)),
        name_(std::move(other.name_)),
        size_(other.size_) {}
  PendingFile& operator=(PendingFile&&) = delete;
  ~PendingFile() {
    if (directory_fd_ >= 0 && fd_.valid()) ::unlinkat(directory_fd_, name_.c_str(), 0);
  }

  Status append(std::string_view bytes) {
    while (!bytes.empty()) {
      const std::string_view block = bytes.substr(0, kBlock);
      // A hole costs the host nothing, however large the sandbox says that it is.
      if (block.find_first_not_of('\0') != std::string_view::npos) TRY(write_at(block));
      size_ += block.size();
      bytes.remove_prefix(block.size());
    }
    return {};
  }

  Status take_place(const std::string& name, std::optional<std::uint64_t> modified) {
    if (::ftruncate(fd_.get(), static_cast<off_t>(size_)) != 0) return fail_errno("truncate");
    if (modified && ::futimens(fd_.get(), ModificationTime(*modified).times) != 0)
      return fail_errno("setting the times of " + name);
    if (::renameat(directory_fd_, name_.c_str(), directory_fd_, name.c_str()) != 0)
      return fail_errno("replace " + name);
    directory_fd_ = -1;
    return {};
  }

 private:
  PendingFile() = default;
  Status write_at(std::string_view block) {
    std::uint64_t at = size_;
    while (!block.empty()) {
      const ssize_t count = ::pwrite(fd_.get(), block.data(), block.size(), static_cast<off_t>(at));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail_errno("write");
      block.remove_prefix(static_cast<std::size_t>(count));
      at += static_cast<std::uint64_t>(count);
    }
    return {};
  }

  int directory_fd_ = -1;
  Fd fd_;
  std::string name_;
  std::uint64_t size_ = 0;
};

class CopyOut {
 public:
  CopyOut(FileAccess& client, std::uint64_t most_bytes) : client_(client), left_(most_bytes) {}

  Status file(const std::string& inside, const InsideEntry& entry, int directory_fd,
              const std::string& name) {
    TRY_ASSIGN(PendingFile pending, PendingFile::create(directory_fd, (entry.mode & 0111) != 0));
    TRY(client_.read(inside, [&](std::string_view bytes) -> Status {
      if (bytes.size() > left_)
        return fail(Error::exhausted(inside + " is larger than may be copied out"));
      left_ -= bytes.size();
      return pending.append(bytes);
    }));
    return pending.take_place(name, entry.modified);
  }

  // Everything below the directory `inside`, which is `top`, into the open directory.
  Status tree(const std::string& inside, const InsideEntry& top, int root_fd) {
    TRY_ASSIGN(std::vector<InsideEntry> entries, client_.list(inside, kMostEntries));
    std::string skipped;
    for (const InsideEntry& entry : entries) {
      if (!is_relative_path(entry.name))
        return fail(Error(Code::kDataLoss, inside + " has an entry whose name cannot be"));
      TRY(one(inside, entry, root_fd, skipped));
    }
    // Last, since what is made in a directory changes its time.
    for (const InsideEntry& entry : entries) {
      if (entry.type == proto::FileType::kDirectory) set_modified(root_fd, entry.name, entry);
    }
    set_modified(root_fd, ".", top);
    if (!skipped.empty())
      return fail(Error::precondition("copied, but for links that lead out of it: " + skipped));
    return {};
  }

 private:
  Status one(const std::string& inside, const InsideEntry& entry, int root_fd,
             std::string& skipped) {
    const std::size_t slash = entry.name.rfind('/');
    const std::string name = slash == std::string::npos ? entry.name : entry.name.substr(slash + 1);
    const std::string folder = slash == std::string::npos ? "." : entry.name.substr(0, slash);
    TRY_ASSIGN(const Fd directory,
               sys::openat2(root_fd, folder, O_PATH | O_DIRECTORY, 0, kBeneath));
    switch (entry.type) {
      case proto::FileType::kDirectory:
        if (::mkdirat(directory.get(), name.c_str(), 0777) != 0 && errno != EEXIST)
          return fail_errno("mkdir " + entry.name);
        return {};
      case proto::FileType::kRegular:
        return file(inside + "/" + entry.name, entry, directory.get(), name);
      case proto::FileType::kSymlink: {
        const auto depth = static_cast<std::size_t>(std::ranges::count(entry.name, '/'));
        if (!link_stays_inside(entry.target, depth)) {
          if (skipped.size() < 200) skipped += (skipped.empty() ? "" : ", ") + entry.name;
          return {};
        }
        return link(entry.target, directory.get(), name);
      }
      default:
        return fail(Error::precondition(inside + "/" + entry.name +
                                        " is neither file, folder nor link and cannot be copied"));
    }
  }

  // A directory that was there already may be somebody else's, and then keeps its time.
  static void set_modified(int root_fd, const std::string& path, const InsideEntry& entry) {
    if (!entry.modified) return;
    const auto directory = sys::openat2(root_fd, path, O_RDONLY | O_DIRECTORY, 0, kBeneath);
    if (directory)
      static_cast<void>(::futimens(directory->get(), ModificationTime(*entry.modified).times));
  }

  static Status link(const std::string& target, int directory_fd, const std::string& name) {
    TRY_ASSIGN(const std::string temporary, temporary_name());
    if (::symlinkat(target.c_str(), directory_fd, temporary.c_str()) != 0)
      return fail_errno("symlink " + name);
    if (::renameat(directory_fd, temporary.c_str(), directory_fd, name.c_str()) != 0) {
      auto failed = fail_errno("replace " + name);
      ::unlinkat(directory_fd, temporary.c_str(), 0);
      return failed;
    }
    return {};
  }

  FileAccess& client_;
  std::uint64_t left_;
};

// Makes `name` in the folder where it is missing, and opens it.
Result<Fd> enter(int folder_fd, const std::string& name) {
  if (::mkdirat(folder_fd, name.c_str(), 0777) != 0 && errno != EEXIST)
    return fail_errno("mkdir " + name);
  return sys::openat2(folder_fd, name, O_PATH | O_DIRECTORY, 0,
                      RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

}  // namespace

Status copy_out(Connection& connection, const std::string& inside, const HostTarget& target,
                const std::string& user, Existing existing, std::uint64_t most_bytes) {
  FileClient client(connection, user);
  return copy_out(client, inside, target, user, existing, most_bytes);
}

Status copy_out(FileAccess& client, const std::string& inside, const HostTarget& target,
                const std::string& user, Existing existing, std::uint64_t most_bytes) {
  client.set_user(user);
  TRY_ASSIGN(const auto there, client.look(inside));
  if (!there.has_value()) return fail(Error::not_found("there is no " + inside + " inside"));
  CopyOut copy(client, most_bytes);
  const std::string own_name = last_component(inside);
  const bool into = target.inside.valid() && (target.name.empty() || existing == Existing::kInto);
  switch (there->type) {
    case proto::FileType::kRegular:
      if (target.inside.valid()) return copy.file(inside, *there, target.inside.get(), own_name);
      return copy.file(inside, *there, target.folder.get(), target.name);
    case proto::FileType::kDirectory: {
      if (into && is_entry_name(own_name)) {
        TRY_ASSIGN(const Fd root, enter(target.inside.get(), own_name));
        return copy.tree(inside, *there, root.get());
      }
      if (target.inside.valid()) return copy.tree(inside, *there, target.inside.get());
      TRY_ASSIGN(const Fd root, enter(target.folder.get(), target.name));
      return copy.tree(inside, *there, root.get());
    }
    case proto::FileType::kSymlink:
      return fail(Error::precondition(inside + " is a symbolic link, which is not followed; copy " +
                                      "what it points to"));
    default:
      return fail(Error::precondition(inside + " is neither file nor folder and cannot be copied"));
  }
}

}  // namespace caisson::box
