// Makes kept sandboxes: the part of the fleet that blocks, for the loop's pool.
//
// A Recipe is all that distinguishes one sandbox from another before a client has it; what belongs
// to a client (its variables, its metadata, its time) comes later, so that sandboxes can be made
// ahead (fleet/pool.h). Thread-safe: a call has no state but the host's.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <map>
#include <string>

#include "base/error.h"
#include "fleet/start_command.h"
#include "policy/spec.h"

namespace caisson::fleet {

struct Recipe {
  std::string image;  // as the store resolves it
  policy::LimitValue cpu_milli = 1000;
  policy::LimitValue memory_bytes = 512ull << 20;
  policy::LimitValue disk_bytes = 256ull << 20;
  policy::LimitValue pids = 1024;
  StartCommand start;  // run by who connects to it first
  auto operator<=>(const Recipe&) const = default;
};

struct Made {
  std::string id;       // of the sandbox on this host, [a-z0-9]{16}
  std::string socket;   // its supervisor's
  std::string user;     // who commands run as by default
  std::string workdir;  // the image's; empty: the user's home
  // What it was made from, as "sha256:ID": a name may mean another image later.
  std::string image;
};

// How long a sandbox lives that nobody has claimed: whoever makes it moves its deadline before.
inline constexpr std::chrono::minutes kUnclaimed{10};

// A sandbox that nobody is connected to, for kUnclaimed. Errors: those of Sandbox::create().
Result<Made> make_sandbox(const Recipe& recipe);
// Ends a sandbox of this host, if it is there: for one whose connection was lost.
void end_sandbox(const std::string& id);

// The variables that every command of a sandbox has, whoever starts it.
std::map<std::string, std::string> own_variables(const std::string& id);

// The socket of a sandbox of this run directory.
std::string socket_of(const std::string& id);

}  // namespace caisson::fleet
