// What a server asks of its host that needs the host's rights: sandboxes to be made and reached,
// and what the image store has.
//
// Every call blocks, so it belongs on a pool's thread; all may be called from several threads at a
// time. caisson-serve has a maker::Client for it, since it has no rights of its own; tests have a
// host that is played.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "policy/spec.h"

namespace caisson::maker {

// How long a sandbox lives that nobody has claimed: whoever has it made moves its deadline before.
inline constexpr std::chrono::minutes kUnclaimed{10};

// All that distinguishes one sandbox from another before a client has it.
struct Recipe {
  std::string image;  // as the store resolves it
  policy::LimitValue cpu_milli = 1000;
  policy::LimitValue memory_bytes = 512ull << 20;
  policy::LimitValue disk_bytes = 256ull << 20;
  policy::LimitValue pids = 1024;
  auto operator<=>(const Recipe&) const = default;
};

struct Made {
  std::string id;       // of the sandbox on this host, [a-z0-9]{16}
  std::string user;     // who commands run as by default
  std::string workdir;  // the image's; empty: the user's home
};

class Host {
 public:
  virtual ~Host() = default;
  // A kept sandbox that nobody is connected to, for kUnclaimed. Errors: those of
  // Sandbox::create().
  virtual Result<Made> make(const Recipe& recipe) = 0;
  // A connection to its supervisor. Errors: not_found where it is there no more; unavailable where
  // it may be and does not answer.
  virtual Result<Fd> connect(const std::string& id) = 0;
  // The kept sandboxes of the run directory that live.
  virtual Result<std::vector<std::string>> kept() = 0;
  // Error: not_found, invalid_argument (no image's name).
  virtual Status find_image(const std::string& name) = 0;
  // The names of the store's images.
  virtual Result<std::vector<std::string>> images() = 0;
};

}  // namespace caisson::maker
