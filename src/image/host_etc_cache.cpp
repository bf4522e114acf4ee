#include "image/host_etc_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/sys.h"
#include "image/files.h"

namespace caisson::image {
namespace {

constexpr const char* kFolder = "etc";
constexpr const char* kUnfinished = "new-";
constexpr const char* kUnfinishedFile = ".new.";  // replace_file_at's
constexpr std::size_t kMaxSources = 256 * 1024;
constexpr int kMaxDepth = 8;
constexpr off_t kMaxFile = 16 << 20;
constexpr int kMostAttempts = 100;
constexpr const char* kNoMachine = "00000000000000000000000000000000";

// What the directory was made from, as text: one line a path. Its digest names the directory.
class Signature {
 public:
  void add(const std::string& path, const struct stat& facts) {
    text_ += path + " " + std::to_string(facts.st_dev) + " " + std::to_string(facts.st_ino) + " " +
             std::to_string(facts.st_size) + " " + std::to_string(facts.st_ctim.tv_sec) + "." +
             std::to_string(facts.st_ctim.tv_nsec) + "\n";
  }
  // 64-bit FNV-1a. Nobody but the owner of RUN can choose what goes in.
  std::string digest() const {
    std::uint64_t digest = 0xcbf29ce484222325u;
    for (const char byte : text_) {
      digest ^= static_cast<unsigned char>(byte);
      digest *= 0x100000001b3u;
    }
    return std::to_string(digest);
  }

 private:
  std::string text_;
};

std::string user_key(std::uint32_t uid, std::uint32_t gid) {
  return std::to_string(uid) + "-" + std::to_string(gid);
}

std::string sources_name(const std::string& key) {
  return "sources-" + key;
}

// The name of the directory that is made from these paths as they are now; "" when one is gone.
std::string generation_name(int etc_fd, const std::string& key, const std::string& sources) {
  Signature signature;
  struct stat facts{};
  std::size_t start = 0;
  while (start < sources.size()) {
    const std::size_t end = std::min(sources.find('\n', start), sources.size());
    const std::string path = sources.substr(start, end - start);
    if (::fstatat(etc_fd, path.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) return "";
    signature.add(path, facts);
    start = end + 1;
  }
  struct stat user{};
  signature.add(key + " " CAISSON_VERSION, user);
  return key + "-" + signature.digest();
}

// The name under which this user's directory is, if it was made from what is there now; else "".
std::string current_name(int etc_fd, int folder_fd, const std::string& key) {
  const auto sources = sys::read_file(folder_fd, sources_name(key), kMaxSources);
  return sources ? generation_name(etc_fd, key, *sources) : "";
}

// The kept directory of that name with a shared lock; invalid when there is none, or when somebody
// is taking it away.
Fd open_kept(int folder_fd, const std::string& name) {
  Fd kept(::openat(folder_fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!kept.valid() || ::flock(kept.get(), LOCK_SH | LOCK_NB) != 0) return {};
  struct stat locked{}, named{};
  if (::fstat(kept.get(), &locked) != 0 ||
      ::fstatat(folder_fd, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) != 0 ||
      locked.st_dev != named.st_dev || locked.st_ino != named.st_ino)
    return {};
  return kept;
}

// Removes the directories of every user that were made from an /etc that is no more, but those that
// a sandbox still shows. The caller holds RUN/sweep shared.
void remove_old_generations(int etc_fd, int folder_fd) {
  const auto names = list_directory(folder_fd);
  if (!names) return;
  for (const std::string& name : *names) {
    // USER-GROUP-DIGEST
    const std::size_t last = name.rfind('-');
    if (last == std::string::npos || name.find_first_not_of("0123456789-") != std::string::npos)
      continue;
    const std::string key = name.substr(0, last);
    const std::string current = current_name(etc_fd, folder_fd, key);
    if (name == current) continue;
    const Fd old(
        ::openat(folder_fd, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
    if (!old.valid() || ::flock(old.get(), LOCK_EX | LOCK_NB) != 0) continue;
    // Away from its name first: who opens it from here on sees that it is not the named one.
    const std::string away = kUnfinished + name;
    if (::renameat(folder_fd, name.c_str(), folder_fd, away.c_str()) != 0) continue;
    (void)remove_tree_at(folder_fd, away);
    if (::faccessat(folder_fd, current.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0)
      (void)::unlinkat(folder_fd, sources_name(key).c_str(), 0);
  }
}

class Builder {
 public:
  Builder(int etc_fd, int target_fd) : etc_fd_(etc_fd), target_fd_(target_fd) { sources_ = ".\n"; }

  Status build(const HostUser& user) {
    for (const GeneratedFile& file : host_files(kDefaultHostname, kNoMachine, user)) {
      const std::string name = file.path.substr(sizeof "/etc/" - 1);
      if (S_ISLNK(file.mode)) {
        if (::symlinkat(file.contents.c_str(), target_fd_, name.c_str()) != 0)
          return fail_errno("symlink " + name);
      } else {
        // Where the command's own id is the caller's, ownership keeps nobody out; no mode does it.
        const bool secret = (file.mode & S_IROTH) == 0;
        TRY(write(target_fd_, name, secret ? 0 : file.mode, file.contents));
      }
    }
    TRY_ASSIGN(const std::vector<HostEtcEntry> entries, open_host_etc(etc_fd_));
    for (const HostEtcEntry& entry : entries) {
      sources_ += entry.path + "\n";
      const std::size_t slash = entry.path.rfind('/');
      Fd parent(::openat(target_fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
      if (!parent.valid()) return fail_errno("open the target");
      if (slash != std::string::npos) {
        TRY_ASSIGN(parent, make_path(entry.path.substr(0, slash)));
      }
      const std::string leaf = entry.path.substr(slash == std::string::npos ? 0 : slash + 1);
      if (entry.kind == HostEtcKind::kLink) {
        // A generated file of that name stays.
        if (::symlinkat(entry.target.c_str(), parent.get(), leaf.c_str()) != 0 && errno != EEXIST)
          return fail_errno("symlink " + entry.path);
      } else if (entry.kind == HostEtcKind::kFile) {
        TRY(copy_file(entry.fd.get(), parent.get(), leaf));
      } else {
        TRY(copy_tree(entry.fd.get(), parent.get(), leaf, entry.path, 0));
      }
    }
    return {};
  }

  const std::string& sources() const { return sources_; }

 private:
  Result<Fd> make_path(const std::string& path) {
    Fd at(::openat(target_fd_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    std::size_t start = 0;
    while (start < path.size()) {
      const std::size_t end = std::min(path.find('/', start), path.size());
      const std::string name = path.substr(start, end - start);
      if (::mkdirat(at.get(), name.c_str(), 0755) != 0 && errno != EEXIST)
        return fail_errno("mkdir " + path);
      TRY_ASSIGN(at, open_directory_at(at.get(), name));
      if (::fchmod(at.get(), 0755) != 0) return fail_errno("chmod " + path);
      start = end + 1;
    }
    return at;
  }

  Status write(int directory_fd, const std::string& name, mode_t mode, std::string_view contents) {
    const Fd file(::openat(directory_fd, name.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.valid()) return fail_errno("create " + name);
    if (::write(file.get(), contents.data(), contents.size()) !=
        static_cast<ssize_t>(contents.size()))
      return fail_errno("write " + name);
    if (::fchmod(file.get(), mode & 0777) != 0) return fail_errno("chmod " + name);
    return {};
  }

  Status copy_file(int source_fd, int directory_fd, const std::string& name) {
    const std::string path = "/proc/self/fd/" + std::to_string(source_fd);
    const Fd source(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!source.valid()) return fail_errno("open " + name);
    struct stat facts{};
    if (::fstat(source.get(), &facts) != 0) return fail_errno("stat " + name);
    if (!S_ISREG(facts.st_mode) || facts.st_size > kMaxFile) return {};
    const Fd target(::openat(directory_fd, name.c_str(),
                             O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!target.valid()) {
      if (errno == EEXIST) return {};  // generated
      return fail_errno("create " + name);
    }
    for (off_t left = facts.st_size; left > 0;) {
      const ssize_t sent =
          ::sendfile(target.get(), source.get(), nullptr, static_cast<std::size_t>(left));
      if (sent < 0) return fail_errno("copy " + name);
      if (sent == 0) break;
      left -= sent;
    }
    if (::fchmod(target.get(), facts.st_mode & 0555 ? 0444 | (facts.st_mode & 0111) : 0444) != 0)
      return fail_errno("chmod " + name);
    return {};
  }

  Status copy_tree(int source_fd, int parent_fd, const std::string& leaf, const std::string& path,
                   int depth) {
    if (depth > kMaxDepth) return {};
    if (::mkdirat(parent_fd, leaf.c_str(), 0755) != 0 && errno != EEXIST)
      return fail_errno("mkdir " + path);
    TRY_ASSIGN(const Fd target, open_directory_at(parent_fd, leaf));
    if (::fchmod(target.get(), 0755) != 0) return fail_errno("chmod " + path);
    const Fd listing(::openat(source_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!listing.valid()) return fail_errno("open " + path);
    TRY_ASSIGN(const std::vector<std::string> names, list_directory(listing.get()));
    for (const std::string& name : names) {
      const Fd entry(::openat(listing.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
      struct stat facts{};
      if (!entry.valid() || ::fstat(entry.get(), &facts) != 0) continue;
      if (S_ISLNK(facts.st_mode)) {
        char link[4096];
        const ssize_t length = ::readlinkat(entry.get(), "", link, sizeof link - 1);
        if (length <= 0) continue;
        link[length] = '\0';
        if (::symlinkat(link, target.get(), name.c_str()) != 0 && errno != EEXIST)
          return fail_errno("symlink " + path + "/" + name);
      } else if ((facts.st_mode & S_IROTH) == 0 || looks_secret(name)) {
        continue;  // the same rules below as above
      } else if (S_ISREG(facts.st_mode)) {
        TRY(copy_file(entry.get(), target.get(), name));
      } else if (S_ISDIR(facts.st_mode)) {
        sources_ += path + "/" + name + "\n";
        TRY(copy_tree(entry.get(), target.get(), name, path + "/" + name, depth + 1));
      }
    }
    return {};
  }

  int etc_fd_, target_fd_;
  std::string sources_;
};

std::vector<std::string> unfinished(int run_directory_fd) {
  const auto folder = open_directory_at(run_directory_fd, kFolder);
  if (!folder) return {};
  auto names = list_directory(folder->get());
  if (!names) return {};
  std::erase_if(*names, [](const std::string& name) {
    return !name.starts_with(kUnfinished) && !name.starts_with(kUnfinishedFile);
  });
  return std::move(names).value();
}

}  // namespace

Result<Fd> host_etc_directory(int run_directory_fd, std::uint32_t uid, std::uint32_t gid,
                              const std::string& etc_path) {
  const Fd etc(::open(etc_path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!etc.valid()) return fail_errno("open " + etc_path);
  const std::string key = user_key(uid, gid);
  TRY_ASSIGN(const Fd folder, open_or_make_directory_at(run_directory_fd, kFolder));
  if (const std::string name = current_name(etc.get(), folder.get(), key); !name.empty()) {
    if (Fd kept = open_kept(folder.get(), name); kept.valid()) return kept;
  }
  // While it is held nobody sweeps, so that what sweep_host_etc() finds is nobody's.
  TRY_ASSIGN(const std::optional<Fd> making,
             lock_file_at(run_directory_fd, "sweep", LockKind::kShared, LockWait::kWait));
  const std::string beside = kUnfinished + std::to_string(::getpid());
  TRY(remove_tree_at(folder.get(), beside));
  if (::mkdirat(folder.get(), beside.c_str(), 0755) != 0) return fail_errno("mkdir etc");
  const auto make = [&]() -> Result<Fd> {
    TRY_ASSIGN(Fd target, open_directory_at(folder.get(), beside));
    if (::fchmod(target.get(), 0755) != 0) return fail_errno("chmod etc");
    Builder builder(etc.get(), target.get());
    TRY(builder.build({.uid = uid, .gid = gid}));
    const std::string name = generation_name(etc.get(), key, builder.sources());
    if (name.empty())
      return fail(Error{Code::kAborted, "/etc changed while it was looked through"});
    // Ours before anybody else can see it.
    if (::flock(target.get(), LOCK_SH | LOCK_NB) != 0) return fail_errno("lock etc");
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      if (::renameat(folder.get(), beside.c_str(), folder.get(), name.c_str()) == 0) {
        TRY(replace_file_at(folder.get(), sources_name(key), builder.sources()));
        return target;
      }
      if (errno != EEXIST && errno != ENOTEMPTY) return fail_errno("rename etc");
      // Another process has made the same meanwhile; its directory is as good, unless a third one
      // takes it away at this moment.
      if (Fd kept = open_kept(folder.get(), name); kept.valid()) {
        TRY(replace_file_at(folder.get(), sources_name(key), builder.sources()));
        return kept;
      }
    }
    return fail(Error{Code::kAborted, "the kept /etc is exchanged again and again"});
  };
  auto made = make();
  (void)remove_tree_at(folder.get(), beside);
  if (made) remove_old_generations(etc.get(), folder.get());
  return made;
}

bool has_unfinished_host_etc(int run_directory_fd) {
  return !unfinished(run_directory_fd).empty();
}

void sweep_host_etc(int run_directory_fd) {
  const auto folder = open_directory_at(run_directory_fd, kFolder);
  if (!folder) return;
  for (const std::string& name : unfinished(run_directory_fd))
    (void)remove_tree_at(folder->get(), name);
}

}  // namespace caisson::image
