// Which host ids a sandbox gets, and the user-namespace maps that follow (ARCHITECTURE.md, "Two
// user namespaces").
//
// As root each sandbox takes a slot of its own, so that two sandboxes share no id; the slot is a
// byte of one file of the host (kHostSlots, whatever RUN is) locked for as long as the launcher or
// the supervisor lives, and free again when both are gone. An ordinary user's sandboxes share that
// user's ids: the subuid range where there is one and newuidmap can apply it, else the user's own
// id alone.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::wall {

// All of them lie where systemd's list of ids has nothing: above the containers of systemd-nspawn
// (0x00080000 to 0x6fffffff), below its "foreign" range (0x7ffe0000 to 0x7ffeffff) and below the
// numbers that some programs take for negative (0x80000000 on). 0x7ffd0000 to 0x7ffdffff are the
// files of root's images (image/ids.h).
inline constexpr std::uint32_t kSlotCount = 4092;
inline constexpr std::uint32_t kRange = 65536;
inline constexpr std::uint32_t kBlockBase = 0x70000000;       // B of slot 0; 65536 ids a slot
inline constexpr std::uint32_t kGuestBase = 0x7ffc0000;       // G of slot 0; one id a slot
inline constexpr std::uint32_t kSupervisorBase = 0x7ffc8000;  // S of slot 0; one id a slot
static_assert(kBlockBase + kSlotCount * kRange == kGuestBase);
static_assert(kGuestBase + kSlotCount <= kSupervisorBase);

inline constexpr const char* kHostSlots = "/run/caisson-ids";

struct IdExtent {
  std::uint32_t inside = 0, outside = 0, count = 0;
};
using IdMap = std::vector<IdExtent>;

// "0 1879048192 65536\n…", as the kernel and newuidmap want it.
std::string to_text(const IdMap& map);
// Where `inside` comes out, nullopt if it is not mapped.
std::optional<std::uint32_t> mapped(const IdMap& map, std::uint32_t inside);

enum class IdMode : std::uint8_t { kRoot, kRange, kSingle };

struct Ids {
  IdMode mode = IdMode::kSingle;
  // What the supervisor becomes (root mode), else the caller's own.
  std::uint32_t supervisor_uid = 0, supervisor_gid = 0;
  IdMap outer_uids, outer_gids;  // U: inside → host
  IdMap inner_uids, inner_gids;  // N: inside → inside U
  Fd slot_lock;                  // root mode

  // Makes N's maps for a command whose own ids inside are these. Error: beyond the range.
  Status set_user(std::uint32_t uid, std::uint32_t gid);

  // The host id of an id in N; nullopt if it is not mapped.
  std::optional<std::uint32_t> host_uid(std::uint32_t inside) const;
  std::optional<std::uint32_t> host_gid(std::uint32_t inside) const;
};

struct Slot {
  Fd lock;  // the slot is taken for as long as this or a copy of it is open
  std::uint32_t number = 0;
};

// A free slot of the file `host_file`; where this process cannot write that (a container whose /run
// is read-only), of RUN/slots, which keeps apart the sandboxes of this RUN alone.
Result<Slot> take_slot(const char* host_file, int run_directory_fd);

// All but the maps of N. The error says which ids are missing.
Result<Ids> allocate_ids(int run_directory_fd);

// The first range of at least kRange ids for `uid` (or its name) in the text of /etc/subuid.
std::optional<std::uint32_t> find_range(const std::string& subid_text, std::uint32_t uid,
                                        const std::string& name);

// Writes both maps of the process `pid`, which waits for that: directly where we have the right to,
// with newuidmap and newgidmap in IdMode::kRange.
Status apply_outer_maps(const Ids& ids, pid_t pid);

// Writes maps and (where needed) "deny" to setgroups of /proc/<pid>, below `proc_fd`.
Status write_maps(int proc_fd, pid_t pid, const IdMap& uids, const IdMap& gids,
                  bool deny_setgroups);

}  // namespace caisson::wall
