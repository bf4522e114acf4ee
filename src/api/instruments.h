// The server's counters, as text in Prometheus' format.
//
// What is counted is bounded by construction: planes and classes of status, no names of anybody.
// Belongs to the loop.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string>

#include "fleet/fleet.h"
#include "http/server.h"

namespace caisson::api {

// What a request was for.
enum class Plane : std::uint8_t { kControl, kSandbox, kPort };
std::string_view to_string(Plane plane);

class Instruments {
 public:
  void begin(Plane plane) { ++of(plane).under_way; }
  // `status` 0: the connection ended without an answer.
  void end(Plane plane, int status, std::chrono::nanoseconds time);

  // What others count.
  struct Gauges {
    http::Server::Counts server;
    fleet::Counts fleet;
    std::uint64_t log_lines_lost = 0;
  };
  std::string text(const Gauges& gauges) const;

 private:
  static constexpr std::array<double, 10> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025,
                                                     0.05,  0.1,    0.25,  1,    10};
  struct Numbers {
    std::uint64_t under_way = 0;
    std::array<std::uint64_t, 6> by_class = {};  // 0: no answer; 1: 1xx … 5: 5xx
    std::array<std::uint64_t, kBounds.size()> up_to = {};
    std::uint64_t count = 0;
    double seconds = 0;
  };
  Numbers& of(Plane plane) { return planes_.at(static_cast<std::size_t>(plane)); }

  std::array<Numbers, 3> planes_;
};

}  // namespace caisson::api
