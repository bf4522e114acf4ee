#include "wall/namespace/ids.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/sys.h"

namespace caisson::wall {
namespace {

Result<Fd> open_slots(const char* host_file, int run_directory_fd) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  Fd file(::open(host_file, kFlags, 0600));
  if (!file.valid()) {
    if (errno != EROFS && errno != EACCES && errno != EPERM && errno != ENOENT && errno != ENOTDIR)
      return fail_errno(std::string("open ") + host_file);
    file = Fd(::openat(run_directory_fd, "slots", kFlags, 0600));
    if (!file.valid()) return fail_errno("open slots");
    return file;
  }
  // Anybody who may open it could lock every slot.
  struct stat facts{};
  if (::fstat(file.get(), &facts) != 0) return fail_errno(std::string("stat ") + host_file);
  if (!S_ISREG(facts.st_mode) || facts.st_uid != ::geteuid() || (facts.st_mode & 0077) != 0)
    return fail(Error::precondition(std::string(host_file) +
                                    " is not a file of root's alone (mode 0600); remove it"));
  return file;
}

}  // namespace

Result<Slot> take_slot(const char* host_file, int run_directory_fd) {
  TRY_ASSIGN(Fd file, open_slots(host_file, run_directory_fd));
  // Starting at a different place each time keeps an id out of use for long after its sandbox.
  const std::uint32_t start =
      static_cast<std::uint32_t>(sys::monotonic_us() * 2654435761u + ::getpid()) % kSlotCount;
  for (std::uint32_t i = 0; i < kSlotCount; ++i) {
    const std::uint32_t slot = (start + i) % kSlotCount;
    struct flock lock{};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_start = slot;
    lock.l_len = 1;
    if (::fcntl(file.get(), F_OFD_SETLK, &lock) == 0) return Slot{std::move(file), slot};
    if (errno != EAGAIN && errno != EACCES) return fail_errno("lock slots");
  }
  return fail(
      Error::exhausted("all " + std::to_string(kSlotCount) + " id blocks of this host are in use"));
}

namespace {

// Root of the host, or of a container that was given our blocks of ids; not root of a user
// namespace with a few, who is an ordinary user to us.
bool owns_all_ids() {
  const auto map = sys::read_file(AT_FDCWD, "/proc/self/uid_map", 64 * 1024);
  if (!map) return false;
  const char* at = map->c_str();
  for (;;) {
    char* end = nullptr;
    const unsigned long long inside = std::strtoull(at, &end, 10);
    if (end == at) return false;
    (void)std::strtoull(end, &end, 10);
    const unsigned long long count = std::strtoull(end, &end, 10);
    constexpr std::uint64_t kEnd = std::uint64_t{kSupervisorBase} + kSlotCount;
    if (inside <= kBlockBase && inside + count >= kEnd) return true;
    at = end;
  }
}

// The caller's login name without the C library's name service, which does not link statically.
std::string own_name() {
  const auto passwd = sys::read_file(AT_FDCWD, "/etc/passwd", 4 << 20);
  if (!passwd) return "";
  const std::string wanted = ":" + std::to_string(::getuid()) + ":";
  std::size_t at = 0;
  while (at < passwd->size()) {
    std::size_t end = passwd->find('\n', at);
    if (end == std::string::npos) end = passwd->size();
    const std::string_view line(passwd->data() + at, end - at);
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second != std::string_view::npos && line.substr(second).starts_with(wanted))
      return std::string(line.substr(0, first));
    at = end + 1;
  }
  return "";
}

std::string find_tool(const char* name) {
  for (const char* folder : {"/usr/bin/", "/bin/", "/usr/local/bin/"}) {
    std::string path = std::string(folder) + name;
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

Status run_tool(const std::string& tool, pid_t pid, const IdMap& map) {
  std::vector<std::string> words = {tool, std::to_string(pid)};
  for (const IdExtent& extent : map) {
    words.push_back(std::to_string(extent.inside));
    words.push_back(std::to_string(extent.outside));
    words.push_back(std::to_string(extent.count));
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  char* environment[] = {nullptr};
  pid_t child;
  if (const int error =
          ::posix_spawn(&child, tool.c_str(), nullptr, nullptr, arguments.data(), environment);
      error != 0)
    return fail(Error::syscall("posix_spawn " + tool, error));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return fail_errno("waitpid");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return fail(Error::precondition(tool + " refused the id range"));
  return {};
}

// 0..65535 → U 1..65536, but the command's own id → U 0.
IdMap inner_range(std::uint32_t own) {
  IdMap map;
  if (own > 0) map.push_back({0, 1, own});
  map.push_back({own, 0, 1});
  if (own + 1 < kRange) map.push_back({own + 1, own + 2, kRange - own - 1});
  return map;
}

}  // namespace

std::string to_text(const IdMap& map) {
  std::string text;
  for (const IdExtent& extent : map) {
    text += std::to_string(extent.inside) + " " + std::to_string(extent.outside) + " " +
            std::to_string(extent.count) + "\n";
  }
  return text;
}

std::optional<std::uint32_t> mapped(const IdMap& map, std::uint32_t inside) {
  for (const IdExtent& extent : map) {
    if (inside >= extent.inside && inside - extent.inside < extent.count)
      return extent.outside + (inside - extent.inside);
  }
  return std::nullopt;
}

std::optional<std::uint32_t> Ids::host_uid(std::uint32_t inside) const {
  const auto middle = mapped(inner_uids, inside);
  return middle ? mapped(outer_uids, *middle) : std::nullopt;
}

std::optional<std::uint32_t> Ids::host_gid(std::uint32_t inside) const {
  const auto middle = mapped(inner_gids, inside);
  return middle ? mapped(outer_gids, *middle) : std::nullopt;
}

std::optional<std::uint32_t> find_range(const std::string& subid_text, std::uint32_t uid,
                                        const std::string& name) {
  const std::string number = std::to_string(uid);
  std::string_view rest = subid_text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string_view who = line.substr(0, first);
    if (who != number && (name.empty() || who != name)) continue;
    const std::string_view start_text = line.substr(first + 1, second - first - 1);
    const std::string_view count_text = line.substr(second + 1);
    std::uint32_t start = 0, count = 0;
    const auto start_end = start_text.data() + start_text.size();
    const auto count_end = count_text.data() + count_text.size();
    if (std::from_chars(start_text.data(), start_end, start).ptr != start_end) continue;
    if (std::from_chars(count_text.data(), count_end, count).ptr != count_end) continue;
    if (count >= kRange && start > 0 && start <= 0xffffffffu - kRange) return start;
  }
  return std::nullopt;
}

Result<Ids> allocate_ids(int run_directory_fd) {
  Ids ids;
  if (::geteuid() == 0 && owns_all_ids()) {
    TRY_ASSIGN(Slot slot, take_slot(kHostSlots, run_directory_fd));
    const std::uint32_t number = slot.number;
    ids.mode = IdMode::kRoot;
    ids.slot_lock = std::move(slot.lock);
    ids.supervisor_uid = ids.supervisor_gid = kSupervisorBase + number;
    ids.outer_uids = {{0, kGuestBase + number, 1}, {1, kBlockBase + number * kRange, kRange}};
    ids.outer_gids = ids.outer_uids;
    return ids;
  }
  ids.supervisor_uid = ::getuid();
  ids.supervisor_gid = ::getgid();
  const auto subuid = sys::read_file(AT_FDCWD, "/etc/subuid", 1 << 20);
  const auto subgid = sys::read_file(AT_FDCWD, "/etc/subgid", 1 << 20);
  if (subuid && subgid && !find_tool("newuidmap").empty() && !find_tool("newgidmap").empty()) {
    const std::string name = own_name();
    const auto uids = find_range(*subuid, ::getuid(), name);
    const auto gids = find_range(*subgid, ::getuid(), name);
    if (uids && gids) {
      ids.mode = IdMode::kRange;
      ids.outer_uids = {{0, ids.supervisor_uid, 1}, {1, *uids, kRange}};
      ids.outer_gids = {{0, ids.supervisor_gid, 1}, {1, *gids, kRange}};
      return ids;
    }
  }
  ids.mode = IdMode::kSingle;
  ids.outer_uids = {{0, ids.supervisor_uid, 1}};
  ids.outer_gids = {{0, ids.supervisor_gid, 1}};
  return ids;
}

Status Ids::set_user(std::uint32_t uid, std::uint32_t gid) {
  switch (mode) {
    case IdMode::kRoot:
      inner_uids = inner_gids = {{0, 1, kRange}};
      return {};
    case IdMode::kRange:
      if (uid >= kRange || gid >= kRange)
        return fail(Error::invalid("the user's id " + std::to_string(std::max(uid, gid)) +
                                   " is not mapped inside; allowed are 0 to " +
                                   std::to_string(kRange - 1)));
      inner_uids = inner_range(uid);
      inner_gids = inner_range(gid);
      return {};
    case IdMode::kSingle:
      inner_uids = {{uid, 0, 1}};
      inner_gids = {{gid, 0, 1}};
      return {};
  }
  return {};
}

Status write_maps(int proc_fd, pid_t pid, const IdMap& uids, const IdMap& gids,
                  bool deny_setgroups) {
  const std::string folder = std::to_string(pid) + "/";
  TRY(sys::write_file(proc_fd, folder + "uid_map", to_text(uids)));
  if (deny_setgroups) TRY(sys::write_file(proc_fd, folder + "setgroups", "deny"));
  TRY(sys::write_file(proc_fd, folder + "gid_map", to_text(gids)));
  return {};
}

Status apply_outer_maps(const Ids& ids, pid_t pid) {
  if (ids.mode == IdMode::kRange) {
    TRY(run_tool(find_tool("newuidmap"), pid, ids.outer_uids));
    return run_tool(find_tool("newgidmap"), pid, ids.outer_gids);
  }
  const Fd proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!proc.valid()) return fail_errno("open /proc");
  return write_maps(proc.get(), pid, ids.outer_uids, ids.outer_gids, ids.mode == IdMode::kSingle);
}

}  // namespace caisson::wall
