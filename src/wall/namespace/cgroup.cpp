#include "wall/namespace/cgroup.h"

#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "base/kernel_abi.h"
#include "base/switches.h"
#include "base/sys.h"
#include "wall/namespace/split.h"

namespace caisson::wall {
namespace {

constexpr std::size_t kMaxProcFile = 1 << 20;
constexpr std::uint64_t kCpuPeriodUs = 100'000;
constexpr int kReleaseMs = 30;
constexpr std::array kIoLimits = {Limit::kIoRead, Limit::kIoWrite, Limit::kIoReadOps,
                                  Limit::kIoWriteOps};
// What the guest itself may take on v2, where the box's group holds it too, on top of a command's
// own limits. Those are its slot's: whatever meets its limit there, the guest is not in that group
// and never the one that is killed for it.
constexpr std::uint64_t kGuestPids = 4;
constexpr std::uint64_t kGuestMemory = 8u << 20;

bool has_word(std::string_view text, std::string_view word, char separator) {
  const auto parts = split(text, separator);
  return std::find(parts.begin(), parts.end(), word) != parts.end();
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::string parent_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

// Whether a group can be made in `path` and a process of ours can enter it. Trying is the only
// honest test: entering needs rights over the nearest common ancestor as well.
bool can_use(const std::string& path, const BeforeProbe& before_probe) {
  const std::string probe = path + "/caisson-probe-" + std::to_string(::getpid());
  if (before_probe) before_probe(probe);
  if (::mkdir(probe.c_str(), 0755) != 0) return false;
  bool entered = ::geteuid() == 0;
  if (!entered) {
    const std::string members = probe + "/cgroup.procs";
    const pid_t child = ::fork();
    if (child == 0) ::_exit(sys::write_file(AT_FDCWD, members, "0") ? 0 : 1);
    int status = 1;
    entered = child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
  }
  // The probe is empty as soon as its child is reaped.
  while (::rmdir(probe.c_str()) != 0 && errno == EBUSY) ::poll(nullptr, 0, 1);
  return entered;
}

// v2: the nearest group, from our own upwards, whose children have controllers and which we may
// use. A group with members of its own is passed by, since enabling controllers below it would make
// its children unusable; the root alone may have both.
CgroupPlace find_unified(const std::string& mount, const std::string& own,
                         const BeforeProbe& before_probe) {
  for (std::string path = mount + (own == "/" ? "" : own); path.size() >= mount.size();
       path = parent_of(path)) {
    const auto members = sys::read_file(AT_FDCWD, path + "/cgroup.procs", kMaxProcFile);
    const bool root = path.size() == mount.size();
    if (!members || (!members->empty() && !root)) continue;
    const auto available = sys::read_file(AT_FDCWD, path + "/cgroup.controllers", 4096);
    if (!available) continue;
    const auto before = sys::read_file(AT_FDCWD, path + "/cgroup.subtree_control", 4096);
    for (const char* controller : {"memory", "pids", "cpu"}) {
      if (has_word(trimmed(*available), controller, ' ') && before &&
          !has_word(trimmed(*before), controller, ' '))
        (void)sys::write_file(AT_FDCWD, path + "/cgroup.subtree_control",
                              std::string("+") + controller);
    }
    const auto enabled = sys::read_file(AT_FDCWD, path + "/cgroup.subtree_control", 4096);
    if (!enabled) continue;
    CgroupPlace place{path, true};
    const std::string words = trimmed(*enabled);
    place.memory = has_word(words, "memory", ' ');
    place.pids = has_word(words, "pids", ' ');
    place.cpu = has_word(words, "cpu", ' ');
    place.io = has_word(trimmed(*available), "io", ' ');
    if ((place.memory || place.pids) && can_use(path, before_probe)) return place;
  }
  return {};
}

Status write_limit(const std::string& directory, const char* file, const std::string& value) {
  return sys::write_file(AT_FDCWD, directory + "/" + file, value);
}

// v2.
Status limit_memory(const std::string& directory, std::uint64_t bytes) {
  TRY(write_limit(directory, "memory.max", std::to_string(bytes)));
  // Absent without swap accounting; then there is nothing to limit.
  (void)write_limit(directory, "memory.swap.max", "0");
  return {};
}

Result<Fd> open_file(const std::string& path, int flags) {
  Fd file(::open(path.c_str(), flags | O_CLOEXEC));
  if (!file.valid()) return fail_errno("open " + path);
  return file;
}

// Opens where it is there; kernels differ in pids.peak, memory.peak and cgroup.kill.
Fd open_optional(const std::string& path, int flags) {
  return Fd(::open(path.c_str(), flags | O_CLOEXEC));
}

void open_io_counter(SlotFiles& files, const std::string& path, bool v2) {
  files.file[SlotFiles::kIoStat] =
      open_optional(path + (v2 ? "/io.stat" : "/blkio.throttle.io_service_bytes"), O_RDONLY);
}

std::string slot_path(const std::string& group, std::uint32_t number) {
  return group + "/x" + std::to_string(number);
}

// For nobody else to go through: a descriptor of it is given to the guest.
Status make_group(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0) return fail_errno("mkdir " + path);
  return {};
}

void signal_members(const std::string& path) {
  const auto members = sys::read_file(AT_FDCWD, path + "/cgroup.procs", kMaxProcFile);
  if (!members) return;
  for (const std::string_view word : split(*members, '\n')) {
    // A number that we read is a member now or was a moment ago; a pidfd pins whoever has it, and
    // the second look makes sure that it is still a member.
    const pid_t pid = static_cast<pid_t>(std::strtol(std::string(word).c_str(), nullptr, 10));
    if (pid <= 1) continue;
    const auto handle = sys::pidfd_open(pid);
    if (!handle) continue;
    const auto again = sys::read_file(AT_FDCWD, path + "/cgroup.procs", kMaxProcFile);
    if (again && has_word(*again, word, '\n')) (void)sys::pidfd_kill(handle->get(), SIGKILL);
  }
}

std::vector<std::string> children_of(const std::string& path) {
  std::vector<std::string> children;
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return children;
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
      children.push_back(path + "/" + entry->d_name);
  }
  ::closedir(directory);
  return children;
}

// rmdir, again while the kernel still reaps members.
bool remove_group(const std::string& path, std::uint64_t deadline_us) {
  for (;;) {
    if (::rmdir(path.c_str()) == 0 || errno == ENOENT) return true;
    if (errno != EBUSY || sys::monotonic_us() >= deadline_us) return false;
    for (const std::string& child : children_of(path)) (void)::rmdir(child.c_str());
    ::poll(nullptr, 0, 1);
  }
}

}  // namespace

CgroupHost find_cgroups(const std::string& proc_root, const BeforeProbe& before_probe) {
  CgroupHost host;
  const auto mounts = sys::read_file(AT_FDCWD, proc_root + "/self/mountinfo", kMaxProcFile);
  const auto own = sys::read_file(AT_FDCWD, proc_root + "/self/cgroup", kMaxProcFile);
  if (!mounts || !own) {
    host.reason = "/proc/self does not tell this process's control groups";
    return host;
  }
  const auto own_path = [&](std::string_view controller) -> std::string {
    for (const std::string_view line : split(*own, '\n')) {
      const std::size_t first = line.find(':'), second = line.find(':', first + 1);
      if (second == std::string_view::npos) continue;
      const std::string_view names = line.substr(first + 1, second - first - 1);
      const bool match = controller.empty() ? names.empty() : has_word(names, controller, ',');
      if (match) return std::string(line.substr(second + 1));
    }
    return "";
  };
  std::string unified_mount;
  bool legacy_refused = false;
  CgroupPlace io_place, freezer_place;  // v1's
  for (const std::string_view line : split(*mounts, '\n')) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string_view::npos) continue;
    const auto left = split(line.substr(0, dash), ' ');
    const auto right = split(line.substr(dash + 3), ' ');
    if (left.size() < 5 || right.size() < 3) continue;
    const std::string mount(left[4]);
    if (right[0] == "cgroup2") {
      unified_mount = mount;
      continue;
    }
    if (right[0] != "cgroup") continue;
    CgroupPlace place;
    place.memory = has_word(right[2], "memory", ',');
    place.pids = has_word(right[2], "pids", ',');
    place.cpu = has_word(right[2], "cpu", ',');
    // Its limits do not hold for groups below, and commands have such where memory or processes
    // are counted.
    place.io = has_word(right[2], "blkio", ',') && !place.memory && !place.pids;
    const bool freezer = has_word(right[2], "freezer", ',');
    if (!place.memory && !place.pids && !place.cpu && !place.io && !freezer) continue;
    const std::string path = own_path(place.memory ? "memory"
                                      : place.pids ? "pids"
                                      : place.cpu  ? "cpu"
                                      : place.io   ? "blkio"
                                                   : "freezer");
    place.path = mount + (path == "/" ? "" : path);
    const bool usable = ::access(place.path.c_str(), W_OK) == 0;
    if (usable && place.io) io_place = place;
    if (usable && freezer) freezer_place = place;
    if (!place.memory && !place.pids && !place.cpu) continue;
    if (usable)
      host.places.push_back(place);
    else
      legacy_refused = true;
  }
  const bool legacy = !host.places.empty();
  // Alone they are no places: nothing would hold what else there is to hold.
  if (legacy) host.io = io_place;
  if (!unified_mount.empty()) {
    const std::string path = own_path("");
    if (legacy) {
      CgroupPlace place{unified_mount + (path == "/" ? "" : path), true};
      if (::access(place.path.c_str(), W_OK) == 0) host.places.push_back(place);
    } else if (CgroupPlace place = find_unified(unified_mount, path, before_probe);
               !place.path.empty()) {
      host.io = place.io ? place : io_place;
      host.places.push_back(place);
      host.mode = CgroupMode::kUnified;
      return host;
    }
  }
  if (legacy) {
    host.mode = host.places.back().v2 ? CgroupMode::kHybrid : CgroupMode::kLegacy;
    if (host.mode == CgroupMode::kLegacy) host.freezer = freezer_place;
  } else if (legacy_refused || !unified_mount.empty()) {
    host.reason = "this user may not make control groups (no delegation)";
  } else {
    host.reason = "no control group file system is mounted";
  }
  return host;
}

CgroupTree CgroupTree::adopt(std::vector<std::string> paths) {
  CgroupTree tree;
  // What they hold is not known here; those of I/O are found by their files.
  for (std::string& path : paths)
    tree.groups_.push_back({.path = std::move(path), .io = true, .freezes = true});
  return tree;
}

Result<CgroupTree> CgroupTree::create(const CgroupHost& host, const Plan& plan, uid_t guest) {
  CgroupTree tree;
  tree.guest_ = guest;
  const auto build = [&]() -> Status {
    for (const CgroupPlace& place : host.places) {
      Group group{place.path + "/caisson-" + plan.id, place.v2,
                  place.memory && !is_off(plan.switches, Mechanism::kCgroupMemory),
                  place.pids && !is_off(plan.switches, Mechanism::kCgroupPids),
                  place.cpu && !is_off(plan.switches, Mechanism::kCgroupCpu)};
      tree.groups_.push_back(group);
      if (!group.v2) continue;
      TRY(make_group(group.path));
      TRY(tree.give_birth_rights(group.path));
      if (!group.memory && !group.pids) continue;
      std::string controllers;
      if (group.memory) controllers += "+memory ";
      if (group.pids) controllers += "+pids";
      TRY(write_limit(group.path, "cgroup.subtree_control", controllers));
      TRY(make_group(group.path + "/guest"));
    }
    return {};
  };
  if (auto built = build(); !built) {
    (void)tree.remove(0);
    return fail(std::move(built).error());
  }
  return tree;
}

Status CgroupTree::complete(const Plan& plan) {
  memory_ = plan.memory;
  pids_ = plan.pids;
  for (const Group& group : groups_) {
    if (!group.v2) TRY(make_group(group.path));
    TRY(limit_group(group, plan));
  }
  return {};
}

Status CgroupTree::limit_group(const Group& group, const Plan& plan) const {
  if (group.memory && plan.memory != 0) {
    if (group.v2) {
      TRY(limit_memory(group.path, plan.memory + kGuestMemory));
    } else {
      const std::string memory = std::to_string(plan.memory);
      TRY(write_limit(group.path, "memory.limit_in_bytes", memory));
      // Absent without swap accounting; then there is nothing to limit.
      (void)write_limit(group.path, "memory.memsw.limit_in_bytes", memory);
    }
  }
  if (group.pids && plan.pids != 0)
    TRY(write_limit(group.path, "pids.max",
                    std::to_string(plan.pids + (group.v2 ? kGuestPids : 0))));
  if (!group.cpu || plan.cpu_milli == 0) return {};
  const std::string quota = std::to_string(plan.cpu_milli * kCpuPeriodUs / 1000);
  if (group.v2)
    return write_limit(group.path, "cpu.max", quota + " " + std::to_string(kCpuPeriodUs));
  // A new group has this period already.
  return write_limit(group.path, "cpu.cfs_quota_us", quota);
}

Status CgroupTree::limit_io(const CgroupPlace& place, const Plan& plan, SeenDisks disks,
                            SlotFiles& first) {
  disks_ = std::move(disks);
  if (place.path.empty() || disks_.disks.empty()) return {};
  if (place.v2 && !write_limit(place.path, "cgroup.subtree_control", "+io")) return {};
  const std::string path = place.path + "/caisson-" + plan.id;
  auto group = std::find_if(groups_.begin(), groups_.end(),
                            [&](const Group& each) { return each.path == path; });
  if (group == groups_.end()) {
    TRY(make_group(path));
    groups_.push_back({.path = path});
    group = groups_.end() - 1;
    TRY_ASSIGN(first.file[SlotFiles::kEnterIo], open_file(path + "/tasks", O_WRONLY));
  }
  group->io = true;
  std::erase_if(disks_.disks, [&](const Disk& disk) {
    const auto limited = limit_disk(path, group->v2, plan, disk);
    if (!limited && disks_.unknown.empty())
      disks_.unknown = "disk " + disk.name() + " takes no limit: " + limited.error().message();
    return !limited;
  });
  // Where slots have controllers each counts for itself.
  if (group->v2 && (group->memory || group->pids))
    TRY(write_limit(path, "cgroup.subtree_control", "+io"));
  open_io_counter(first, group->v2 ? slot_path(path, kFirstSlot) : path, group->v2);
  return {};
}

// Version 2 finds whose a dirty page was by the memory controller.
LaterWrites CgroupTree::later_writes(const Group& group) {
  return group.v2 && group.memory ? LaterWrites::kCounted : LaterWrites::kNobodys;
}

std::string CgroupTree::io_fault(Limit limit) const {
  const auto group =
      std::find_if(groups_.begin(), groups_.end(), [](const Group& each) { return each.io; });
  if (group != groups_.end()) return io_hold(disks_, later_writes(*group), limit).fault;
  if (disks_.disks.empty()) return io_hold(disks_, LaterWrites::kNobodys, limit).fault;
  return "there is no control group with io (blkio on version 1)";
}

Status CgroupTree::limit_slot(const Group& group, const std::string& path) const {
  if (group.pids && pids_ != 0) TRY(write_limit(path, "pids.max", std::to_string(pids_)));
  if (group.v2 && group.memory && memory_ != 0) TRY(limit_memory(path, memory_));
  return {};
}

Status CgroupTree::give_birth_rights(const std::string& path) const {
  if (guest_ == ::geteuid()) return {};
  if (::chown((path + "/cgroup.procs").c_str(), guest_, static_cast<gid_t>(-1)) != 0)
    return fail_errno("chown " + path + "/cgroup.procs");
  return {};
}

HeldLimits CgroupTree::held() const {
  HeldLimits held{};
  for (const Group& group : groups_) {
    if (group.memory) held[static_cast<std::size_t>(Limit::kMemory)] = HeldBy::kCgroup;
    if (group.pids) held[static_cast<std::size_t>(Limit::kPids)] = HeldBy::kCgroup;
    if (group.cpu) held[static_cast<std::size_t>(Limit::kCpus)] = HeldBy::kCgroup;
    if (!group.io) continue;
    for (const Limit limit : kIoLimits)
      held[static_cast<std::size_t>(limit)] = io_hold(disks_, later_writes(group), limit).by;
  }
  return held;
}

Result<Fd> CgroupTree::guest_directory() const {
  for (const Group& group : groups_) {
    if (!group.v2) continue;
    const bool controlled = group.memory || group.pids;
    return open_file(group.path + (controlled ? "/guest" : ""), O_RDONLY | O_DIRECTORY);
  }
  return Fd();
}

namespace {

void open_counters(SlotFiles& files, const std::string& path, bool v2, bool memory, bool pids,
                   bool io) {
  if (io) open_io_counter(files, path, v2);
  if (memory) {
    files.file[SlotFiles::kMemoryEvents] =
        open_optional(path + (v2 ? "/memory.events" : "/memory.oom_control"), O_RDONLY);
    files.file[SlotFiles::kMemoryPeak] =
        open_optional(path + (v2 ? "/memory.peak" : "/memory.max_usage_in_bytes"), O_RDONLY);
    files.file[SlotFiles::kMemoryNow] =
        open_optional(path + (v2 ? "/memory.current" : "/memory.usage_in_bytes"), O_RDONLY);
  }
  if (pids) {
    files.file[SlotFiles::kPidsEvents] = open_optional(path + "/pids.events", O_RDONLY);
    files.file[SlotFiles::kPidsPeak] = open_optional(path + "/pids.peak", O_RDONLY);
    files.file[SlotFiles::kPidsNow] = open_optional(path + "/pids.current", O_RDONLY);
  }
  if (v2) {
    files.file[SlotFiles::kCpuStat] = open_optional(path + "/cpu.stat", O_RDONLY);
    files.file[SlotFiles::kKill] = open_optional(path + "/cgroup.kill", O_WRONLY);
  }
}

}  // namespace

Result<SlotFiles> CgroupTree::sandbox_files() const {
  SlotFiles files;
  for (const Group& group : groups_) {
    open_counters(files, group.path, group.v2, group.memory, group.pids, group.io);
    if (group.memory)
      files.file[SlotFiles::kMemoryStat] = open_optional(group.path + "/memory.stat", O_RDONLY);
  }
  return files;
}

Result<SlotFiles> CgroupTree::make_slot(std::uint32_t number) const {
  SlotFiles files;
  // On v1 the first command lives in the box's own groups: making a group there is the dearest step
  // of all, and most boxes run one command. Its peaks then include what later commands add; hits of
  // a limit are counted where they happen and stay exact.
  const bool first = number == kFirstSlot;
  const auto build = [&]() -> Status {
    for (const Group& group : groups_) {
      if (group.freezes) continue;
      // The quota of the whole box is enough for the processor: no group of its own there.
      const bool own = group.v2 || (!first && (group.memory || group.pids));
      const std::string path = own ? slot_path(group.path, number) : group.path;
      if (own) {
        TRY(make_group(path));
        TRY(limit_slot(group, path));
      }
      if (group.v2 && guest_ != ::geteuid()) {
        TRY(give_birth_rights(path));
        TRY_ASSIGN(files.file[SlotFiles::kBirthUnified], open_file(path, O_PATH | O_DIRECTORY));
      } else if (group.v2) {
        TRY_ASSIGN(files.file[SlotFiles::kEnterUnified],
                   open_file(path + "/cgroup.procs", O_WRONLY));
      } else {
        const auto enter = group.memory ? SlotFiles::kEnterMemory
                           : group.pids ? SlotFiles::kEnterPids
                           : group.cpu  ? SlotFiles::kEnterCpu
                                        : SlotFiles::kEnterIo;
        TRY_ASSIGN(files.file[enter], open_file(path + "/tasks", O_WRONLY));
      }
      open_counters(files, path, group.v2, group.memory, group.pids, group.io);
    }
    return {};
  };
  if (auto built = build(); !built) {
    (void)remove_slot(number, 0);
    return fail(std::move(built).error());
  }
  return files;
}

bool CgroupTree::remove_slot(std::uint32_t number, int patience_ms) const {
  const std::uint64_t deadline =
      sys::monotonic_us() + static_cast<std::uint64_t>(patience_ms) * 1000;
  bool gone = true;
  for (const Group& group : groups_)
    gone = remove_group(slot_path(group.path, number), deadline) && gone;
  return gone;
}

void CgroupTree::kill() const {
  thaw_freezers();
  kill_members();
  for (const Group& group : groups_) {
    if (group.io) lift_io_limits(group.path);
  }
}

void CgroupTree::release_io(const Plan& plan) const {
  for (const Group& group : groups_) {
    if (!group.io) continue;
    lift_io_limits(group.path);
    // The kernel hands out what waited from a timer of its own.
    ::poll(nullptr, 0, kReleaseMs);
    for (const Disk& disk : disks_.disks) (void)limit_disk(group.path, group.v2, plan, disk);
  }
}

void CgroupTree::kill_members() const {
  for (const Group& group : groups_) {
    // One v2 group holds everything that runs, and its kill is atomic.
    if (sys::write_file(AT_FDCWD, group.path + "/cgroup.kill", "1")) return;
  }
  for (const Group& group : groups_) {
    signal_members(group.path);
    for (const std::string& child : children_of(group.path)) signal_members(child);
  }
}

Status CgroupTree::remove(int patience_ms) const {
  const std::uint64_t deadline =
      sys::monotonic_us() + static_cast<std::uint64_t>(patience_ms) * 1000;
  std::string left;
  for (const Group& group : groups_) {
    // Most have no group below, and looking for one reads the names of all their files.
    if (::rmdir(group.path.c_str()) == 0 || errno == ENOENT) continue;
    for (const std::string& child : children_of(group.path)) (void)remove_group(child, deadline);
    if (!remove_group(group.path, deadline)) left += " " + group.path;
  }
  if (!left.empty()) return fail(Error::internal("control groups that stay:" + left));
  return {};
}

}  // namespace caisson::wall
