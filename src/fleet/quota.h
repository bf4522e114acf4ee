// What a team may have: at once, and of one sandbox.
//
// The server's configuration says it for everybody, the database (db/teams.h) less for one team. A
// fleet asks for it before everything that could go over it, and then looks and counts in one turn
// of the loop, so that of many at once none goes over. Belongs to the loop, but for the pure
// functions.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "db/teams.h"
#include "fleet/host.h"
#include "fleet/shared_database.h"
#include "io/async.h"
#include "policy/server_config.h"

namespace caisson::fleet {

// The longest time that is one: what clients may write, and no end to speak of.
inline constexpr std::chrono::seconds kLongestLife{2'147'483'647};

struct Quota {
  std::size_t sandboxes = 1000;  // running
  std::size_t paused = 1000;     // beside these, with their memory
  std::chrono::seconds longest{24 * 3600};
  // Of one sandbox; nullopt is unlimited.
  policy::LimitValue cpu_milli, memory_bytes, disk_bytes, pids;
  policy::SyscallProfile profile = policy::SyscallProfile::kDefault;  // beside the default one
  policy::Privileges privileges = policy::Privileges::kSudo;          // the most
  bool operator==(const Quota&) const = default;
};

// Where the limits of a recipe come from. kUsual: nobody asked for them; a team that may have less
// gets less. kAsked: somebody did, and more than the team may have is refused.
enum class Limits : std::uint8_t { kUsual, kAsked };

// The recipe as a team with this quota gets it. Error: invalid_argument with the limit's key. Pure.
Result<Recipe> recipe_within(const Quota& quota, Recipe recipe, Limits limits);

// Whether a sandbox of this recipe, as its spec has it in the end, may have its privileges. They
// are never lowered by themselves: what E2B's clients do with files needs sudo. Error:
// invalid_argument. Pure.
Status check_privileges(const Quota& quota, const Recipe& recipe);

// The lower of both in everything. Pure.
Quota quota_of(const policy::ServerConfig& config, const db::Quota& team);

// Quotas of the database, remembered for a few seconds so that a burst does not read each time: a
// change takes effect within these.
class DatabaseQuotas {
 public:
  // The configuration outlives it.
  DatabaseQuotas(std::shared_ptr<SharedDatabase> database, const policy::ServerConfig& config)
      : database_(std::move(database)), config_(config) {}

  // Error: not_found (the team).
  io::Async<Result<Quota>> of(std::string team);

  static constexpr std::chrono::seconds kRemembered{5};
  static constexpr std::size_t kMost = 4096;

 private:
  struct Entry {
    Quota quota;
    io::Clock::time_point until;
  };
  std::shared_ptr<SharedDatabase> database_;
  const policy::ServerConfig& config_;
  std::map<std::string, Entry> entries_;
};

}  // namespace caisson::fleet
