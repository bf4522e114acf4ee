// Connections to servers that wait for the next request of a client's connection (upstream.h).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/loop.h"
#include "io/stream.h"
#include "policy/host_name.h"

namespace caisson::egress {

// Between two requests; servers wait for the next one for five seconds and more.
inline constexpr std::chrono::seconds kMostKept{4};

// A connection of HTTP/1.1 between two requests of one connection of the sandbox's. It counts as
// none that is made for it: there are no more of them than connections of its own.
struct KeptUpstream {
  policy::Host to, name;
  std::uint16_t port = 0;
  bool tls = false;
  std::string address;
  std::uint64_t revision = 0;  // of the policy by which it was kept
  io::Clock::time_point since;
  std::unique_ptr<io::Stream> stream;  // null: it was too old, or the policy is another one
};

// All that are kept, so that none outlives its time because its client is idle. Belongs to the
// loop.
class KeptUpstreams {
 public:
  void add(io::Loop& loop, const std::shared_ptr<KeptUpstream>& kept);
  // Ends all of them: the policy is another one.
  void forget();

 private:
  struct State {
    std::vector<std::weak_ptr<KeptUpstream>> all;
    bool watched = false;
  };
  static io::Async<void> watch(std::shared_ptr<State> state);
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace caisson::egress
