#include "launcher/registry.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <vector>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "image/host_etc_cache.h"

namespace caisson::launcher {
namespace {

constexpr const char* kState = "state";
constexpr const char* kNewState = "state.new";
constexpr const char* kFiles[] = {"socket", "info", kState, kNewState, "lock"};
constexpr std::size_t kMostState = 256;
// Directories that a start looks into: with hundreds of living ones looking into all of them would
// cost it more than anything else.
constexpr std::size_t kSomeLooks = 8;

Result<Fd> open_sandboxes(int run_directory_fd) {
  if (::mkdirat(run_directory_fd, "sandboxes", 0700) != 0 && errno != EEXIST)
    return fail_errno("mkdir sandboxes");
  return sys::openat2(run_directory_fd, "sandboxes", O_RDONLY | O_DIRECTORY, 0,
                      RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
}

Result<Fd> open_lock(int directory_fd, const char* name) {
  Fd lock(::openat(directory_fd, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!lock.valid()) return fail_errno(std::string("open ") + name);
  return lock;
}

Status remove_directory(int sandboxes_fd, int directory_fd, const std::string& id) {
  for (const char* name : kFiles) {
    if (::unlinkat(directory_fd, name, 0) != 0 && errno != ENOENT)
      return fail_errno("unlink " + id + "/" + name);
  }
  if (::unlinkat(sandboxes_fd, id.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT)
    return fail_errno("rmdir " + id);
  return {};
}

// A unix socket's path is short; by way of /proc the directory's depth does not count.
Result<Fd> bind_socket(int directory_fd) {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return fail_errno("socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = "/proc/self/fd/" + std::to_string(directory_fd) + "/socket";
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  // Nobody but the owner may connect; there is no moment in which it is open wider.
  const mode_t mask = ::umask(0177);
  const int bound = ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address);
  ::umask(mask);
  if (bound != 0) return fail_errno("bind the sandbox's socket");
  if (::listen(socket.get(), 64) != 0) return fail_errno("listen");
  return socket;
}

}  // namespace

Result<Registration> Registration::create(int run_directory_fd, const std::string& id) {
  Registration registration;
  registration.id_ = id;
  TRY_ASSIGN(registration.sandboxes_, open_sandboxes(run_directory_fd));
  {
    TRY_ASSIGN(const Fd sweeping, open_lock(run_directory_fd, "sweep"));
    if (::flock(sweeping.get(), LOCK_SH) != 0) return fail_errno("flock sweep");
    if (::mkdirat(registration.sandboxes_.get(), id.c_str(), 0700) != 0)
      return fail_errno("mkdir " + id);
    TRY_ASSIGN(registration.directory_,
               sys::openat2(registration.sandboxes_.get(), id, O_RDONLY | O_DIRECTORY, 0,
                            RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
    TRY_ASSIGN(registration.lock_, open_lock(registration.directory_.get(), "lock"));
    if (::flock(registration.lock_.get(), LOCK_EX | LOCK_NB) != 0) return fail_errno("flock lock");
  }
  return registration;
}

Status Registration::publish(std::string_view info) {
  const Fd file(::openat(directory_.get(), "info", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return fail_errno("create info");
  if (::write(file.get(), info.data(), info.size()) != static_cast<ssize_t>(info.size()))
    return fail_errno("write info");
  TRY_ASSIGN(listener_, bind_socket(directory_.get()));
  return {};
}

Status Registration::store_state(const SandboxState& state) {
  const Fd file(::openat(directory_.get(), kNewState,
                         O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.valid()) return fail_errno("create the new state");
  const std::string text = "deadline_ms " + std::to_string(state.deadline_ms) + "\nfrozen " +
                           (state.frozen == Frozen::kYes ? "1" : "0") + "\n";
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    return fail_errno("write the state");
  if (::renameat(directory_.get(), kNewState, directory_.get(), kState) != 0)
    return fail_errno("rename the state");
  return {};
}

Result<std::optional<SandboxState>> read_state(int directory_fd) {
  auto text = sys::read_file(directory_fd, kState, kMostState);
  if (!text && text.error().error_number() == ENOENT) return std::nullopt;
  if (!text) return fail(std::move(text).error());
  unsigned long long deadline = 0;
  unsigned frozen = 0;
  if (std::sscanf(text->c_str(), "deadline_ms %llu\nfrozen %u\n", &deadline, &frozen) != 2)
    return fail(Error(Code::kDataLoss, "a sandbox's state is not one"));
  return SandboxState{.deadline_ms = deadline, .frozen = frozen != 0 ? Frozen::kYes : Frozen::kNo};
}

Status Registration::remove() {
  return remove_directory(sandboxes_.get(), directory_.get(), id_);
}

Result<int> sweep(int run_directory_fd, wall::Wall& wall, Looks looks) {
  TRY_ASSIGN(const Fd sandboxes, open_sandboxes(run_directory_fd));
  std::vector<std::string> names;
  const int listing = ::openat(sandboxes.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (listing < 0) return fail_errno("open sandboxes");
  DIR* directory = ::fdopendir(listing);
  if (directory == nullptr) {
    ::close(listing);
    return fail_errno("fdopendir");
  }
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  ::closedir(directory);
  if (names.empty() && !image::has_unfinished_host_etc(run_directory_fd)) return 0;
  TRY_ASSIGN(const Fd sweeping, open_lock(run_directory_fd, "sweep"));
  if (::flock(sweeping.get(), LOCK_EX | LOCK_NB) != 0) return 0;
  image::sweep_host_etc(run_directory_fd);
  if (looks == Looks::kSome && names.size() > kSomeLooks) {
    // Elsewhere each time, so that all are looked at before long.
    const std::size_t start = sys::monotonic_us() % names.size();
    std::rotate(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(start), names.end());
    names.resize(kSomeLooks);
  }
  int count = 0;
  for (const std::string& name : names) {
    auto dead = sys::openat2(sandboxes.get(), name, O_RDONLY | O_DIRECTORY, 0,
                             RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
    if (!dead) continue;
    const Fd lock(::openat(dead->get(), "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (lock.valid() && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) continue;  // it lives
    if (!wall.sweep(dead->get())) continue;  // the next sweep tries again
    if (remove_directory(sandboxes.get(), dead->get(), name)) ++count;
  }
  return count;
}

Status sweep_one(int run_directory_fd, const std::string& id, wall::Wall& wall, int patience_ms) {
  TRY_ASSIGN(const Fd sandboxes, open_sandboxes(run_directory_fd));
  auto dead = sys::openat2(sandboxes.get(), id, O_RDONLY | O_DIRECTORY, 0,
                           RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
  if (!dead) {
    if (dead.error().error_number() == ENOENT) return {};  // not yet registered, or swept already
    return fail(std::move(dead).error());
  }
  const Fd lock(::openat(dead->get(), "lock", O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  const std::uint64_t deadline =
      sys::monotonic_us() + static_cast<std::uint64_t>(patience_ms) * 1000;
  while (lock.valid() && ::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (sys::monotonic_us() >= deadline)
      return fail(Error::internal("a process of sandbox " + id + " still runs"));
    ::poll(nullptr, 0, 1);
  }
  TRY(wall.sweep(dead->get()));
  return remove_directory(sandboxes.get(), dead->get(), id);
}

}  // namespace caisson::launcher
