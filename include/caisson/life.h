// How long a sandbox lives. Plain values; the order is that of the launch plan.
#pragma once

#include <cstdint>

namespace caisson {

enum class Life : std::uint8_t {
  kOwner = 0,        // ends with the object, and the process, that made it
  kMainCommand = 1,  // ends with its first command; whoever made it may go
  kKept = 2,  // until its deadline, an end that somebody asks for, or its supervisor's death; it
              // has no main command, and whoever made it may go
};
inline constexpr int kLives = 3;

}  // namespace caisson
