// What names led to, for as long as the answers hold: programs connect to the same few hosts again
// and again, and what is looked into has a connection of its own for each request.
//
// Addresses are kept, and no decision: each is judged whenever it is dialed. An answer holds as
// long as its sender says, a minute at most; one that may not be kept is not. Owned by the gateway.
// Belongs to the loop.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/loop.h"
#include "policy/ip_address.h"

namespace caisson::egress {

inline constexpr std::chrono::seconds kLongestKnown{60};
inline constexpr std::size_t kMostKnown = 256;

class KnownAddresses {
 public:
  // nullopt: nothing is known that still holds.
  std::optional<std::vector<policy::IpAddress>> find(const std::string& name,
                                                     io::Clock::time_point now) const;
  // `holds`: the answer's time to live.
  void keep(const std::string& name, std::vector<policy::IpAddress> addresses,
            std::chrono::seconds holds, io::Clock::time_point now);
  // Nothing answered there.
  void forget(const std::string& name);

 private:
  struct Known {
    std::vector<policy::IpAddress> addresses;
    io::Clock::time_point until;
  };
  void make_room(io::Clock::time_point now);

  std::map<std::string, Known> names_;
};

}  // namespace caisson::egress
