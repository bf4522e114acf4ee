// The SRV records that a policy lets a sandbox ask for, looked up outside: once for all who ask at
// a time, and kept for as long as its programs may keep them, so that how often they ask says
// nothing outside.
//
// Owned by the gateway. Belongs to the loop, which outlives it.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "egress/dns_answer.h"
#include "io/loop.h"

namespace caisson::egress {

// So long nobody is asked again who did not answer.
inline constexpr std::chrono::seconds kUnknownServices{5};

class Services {
 public:
  explicit Services(io::Loop& loop) : loop_(loop), one_found_(loop) {}

  struct Found {
    KnownServices services;
    bool asked = false;  // for this call: it is to be recorded
  };
  // `ttl`: how long it holds. No record and no such name is an empty list. Lives until it is done.
  io::Async<Found> find(std::string name, std::chrono::seconds ttl);

 private:
  struct Known {
    KnownServices services;
    bool asking = true;
    io::Clock::time_point until;
  };
  // Without those that hold no more: policies may have had more names than one may have.
  void make_room();

  io::Loop& loop_;
  io::Event one_found_;
  std::map<std::string, Known> names_;
};

}  // namespace caisson::egress
