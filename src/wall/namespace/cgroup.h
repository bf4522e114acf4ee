// Control groups of one sandbox, on cgroup v2, on v1, and on both at once.
//
// find_cgroups() looks where this process may make groups: below its own group or the nearest
// ancestor that has the controllers. CgroupTree makes `caisson-ID` there, writes the limits before
// anything runs, and makes one child group per command ("slot") below it. Modes:
//
//   kUnified  v2 holds limits and life cycle (memory.max, pids.max, cpu.max, cgroup.kill, …)
//   kHybrid   v1 holds the limits, a v2 mount without controllers the life cycle
//   kLegacy   v1 alone; ended by signalling members until none is left
//   kNone     no group can be made: limits fall back to rlimits and watching
//
// A command enters a v1 group by writing "0" to a descriptor of `tasks` that was opened with the
// launcher's rights, and is born in its v2 group (CLONE_INTO_CGROUP): whoever writes cgroup.procs
// takes a lock that waits for every processor, which costs milliseconds on an idle machine and
// leaves one thread that moves itself by `tasks` alone. Being born somewhere asks the guest's own
// rights, so its host uid owns cgroup.procs there and in the box's group, and nothing else. The
// directory that it needs for that is one of the host's tree: nobody but root may go through it
// (0700), so that it leads the guest nowhere. Where the guest has the caller's own id that would
// not keep it, and commands enter by cgroup.procs after all. Nothing inside sees a group's path.
// Only the launcher and the supervisor (before it is confined) use this; one thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "wall/namespace/cgroup_io.h"
#include "wall/namespace/disks.h"
#include "wall/plan.h"
#include "wall/wall.h"

namespace caisson::wall {

enum class CgroupMode : std::uint8_t { kNone, kLegacy, kHybrid, kUnified };

// A directory below which groups can be made, and what it controls.
struct CgroupPlace {
  std::string path;  // absolute
  bool v2 = false;
  bool memory = false, pids = false, cpu = false, io = false;
};

struct CgroupHost {
  CgroupMode mode = CgroupMode::kNone;
  std::vector<CgroupPlace> places;
  // Where I/O can be limited: one of the places, or v1's blkio hierarchy, which is one more to make
  // a group in. No path: nowhere. Nothing is made or enabled there before a limit asks for it.
  CgroupPlace io;
  // v1's freezer hierarchy, where it is what freezes: without v2. A group is made there when a
  // sandbox is frozen for the first time. No path: none.
  CgroupPlace freezer;
  // Why there is none, for people; empty otherwise.
  std::string reason;
};

// `proc_root` is "/proc"; tests give a directory of their own. On v2 an ordinary user's rights can
// only be found out by trying: `before_probe` is told of each group that is made for that and
// removed at once, before it is made.
using BeforeProbe = std::function<void(const std::string& path)>;
CgroupHost find_cgroups(const std::string& proc_root, const BeforeProbe& before_probe = {});

// The descriptors of one slot, each -1 where the mode has no such file.
struct SlotFiles {
  enum Index : std::uint8_t {
    kEnterMemory,
    kEnterPids,
    kEnterCpu,
    kEnterIo,
    kEnterUnified,  // v2, where the guest is not to have the directory: cgroup.procs
    kBirthUnified,  // v2: the group's directory, to be born in; the last of those to enter
    kMemoryEvents,
    kMemoryPeak,
    kMemoryNow,
    kMemoryStat,  // of the whole sandbox alone
    kPidsEvents,
    kPidsPeak,
    kPidsNow,
    kCpuStat,
    kIoStat,
    kKill,
    kCount
  };
  static constexpr int kEnterCount = 6;
  std::array<Fd, kCount> file;
};

inline constexpr std::uint32_t kFirstSlot = 1;

class CgroupTree {
 public:
  CgroupTree() = default;
  // Makes of the sandbox's groups the one that the guest is born in, for the plan's id; `guest` is
  // the host's id of PID 1 inside. On an error nothing is left.
  static Result<CgroupTree> create(const CgroupHost& host, const Plan& plan, uid_t guest);
  // Makes the others and writes the plan's limits. The first command's place comes after that.
  Status complete(const Plan& plan);
  // Writes the plan's limits of I/O for each of `disks`, in `place`: a group is made there where
  // the sandbox has none, and the first slot gets its files. What the kernel does not take is not
  // held.
  Status limit_io(const CgroupPlace& place, const Plan& plan, SeenDisks disks, SlotFiles& first);
  // The tree of a journal: the group directories by path, for remove().
  static CgroupTree adopt(std::vector<std::string> paths);

  bool empty() const { return groups_.empty(); }
  HeldLimits held() const;
  // Why a limit of I/O is not held by a control group; empty where it is.
  std::string io_fault(Limit limit) const;
  // The guest's own v2 group, for CLONE_INTO_CGROUP; invalid without v2. On v1 the guest, a
  // megabyte that no command can grow, stays outside: entering a group there waits for every
  // processor.
  Result<Fd> guest_directory() const;
  // Files of the whole sandbox (the enter descriptors are invalid).
  Result<SlotFiles> sandbox_files() const;

  // Makes group x<number> in each hierarchy and opens its files.
  Result<SlotFiles> make_slot(std::uint32_t number) const;
  // Removes x<number> where it is empty by now; processes that still die are waited for at most
  // `patience_ms`. True when nothing of it is left.
  bool remove_slot(std::uint32_t number, int patience_ms) const;

  // Lets what waits for its turn at a disk go on, and limits again: whoever was killed meanwhile
  // ends. Takes some milliseconds; nothing without limits of I/O.
  void release_io(const Plan& plan) const;
  // Stops every process of the commands, whichever of them are left, and waits at most
  // `patience_ms` for that; thaw() lets them go on. On v2 each command's group is frozen, and the
  // guest, which is beside or above them, goes on. On v1 alone they are brought into a group of
  // `freezer`. Errors: failed_precondition where neither is there, deadline_exceeded; then nothing
  // is frozen.
  Status freeze(const CgroupPlace& freezer, const Plan& plan, int patience_ms);
  Status thaw() const;
  // Thaws and kills every member, and lets what waits for its turn at a disk go on to its end. Safe
  // to call at any time.
  void kill() const;
  // Removes all groups, waiting at most `patience_ms` for members to be gone; names what stays.
  Status remove(int patience_ms) const;

 private:
  struct Group {
    std::string path;
    bool v2 = false, memory = false, pids = false, cpu = false, io = false;
    bool freezes = false;  // v1
  };
  Status gather(const Group& freezer, std::uint64_t deadline_us) const;
  // v1, where what is frozen does not die.
  void thaw_freezers() const;
  static LaterWrites later_writes(const Group& group);
  void kill_members() const;
  // Lets the guest's children be born in (or below) a v2 group.
  Status give_birth_rights(const std::string& path) const;
  Status limit_group(const Group& group, const Plan& plan) const;
  Status limit_slot(const Group& group, const std::string& path) const;

  std::vector<Group> groups_;
  std::uint64_t memory_ = 0, pids_ = 0;  // of each slot; 0: unlimited, or not known yet
  uid_t guest_ = 0;
  SeenDisks disks_;  // those that are limited
};

}  // namespace caisson::wall
