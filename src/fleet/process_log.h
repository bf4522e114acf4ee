// Of which processes a sandbox's log says that they started and not yet that they ended. Pure.
//
// Who starts a process is told of its end and puts it into the log at once; a client that has left
// is told nothing, and a server that starts again has told nobody. The log itself says what is
// missing: of each process, by its number, the end is noted once, by whoever learns of it first.
#pragma once

#include <caisson/result.h>

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fleet/fleet.h"

namespace caisson::fleet {

class ProcessLog {
 public:
  using Fields = std::map<std::string, std::string>;

  // The entry of a start; `fields` are the end's too.
  Event started(std::uint32_t command, Fields fields);
  // That of an end. nullopt: it is noted already, or the start is not.
  std::optional<Event> ended(std::uint32_t command, WallClock::time_point when,
                             const Outcome& outcome);
  // That of an end of which nobody knows more.
  std::optional<Event> lost(std::uint32_t command);

  // Numbers of those whose end is not noted.
  std::set<std::uint32_t> open() const;
  // Goes on with a log that there is, the oldest entry first.
  void restore(const std::vector<Event>& log);

 private:
  std::optional<Event> close(std::uint32_t command);

  std::map<std::uint32_t, Fields> open_;
};

// "killed" for 9, as Go's programs call it; "signal 77" for what has no name.
std::string signal_text(std::uint32_t number);

}  // namespace caisson::fleet
