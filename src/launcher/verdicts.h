// How the newest commands of a sandbox ended, and which calls were refused in it: what a client
// that was not there may still ask (kListVerdicts).
//
// Bounded: the newest kMost commands, of them no more than kMostBytes; refused calls are counted by
// kind over the sandbox's whole life, the first kMaxRefusals kinds. One thread.
#pragma once

#include <caisson/result.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace caisson::launcher {

class Verdicts {
 public:
  static constexpr std::size_t kMost = 64;
  static constexpr std::size_t kMostBytes = 128 * 1024;

  struct Which {
    std::uint32_t command = 0;  // the number of a kept one, else 0
    std::string program;
    std::uint64_t started_ms = 0, ended_ms = 0;  // Unix time
  };
  void add(const Which& which, const Outcome& outcome);

  // The oldest first, each as fields of a frame.
  const std::deque<std::string>& all() const { return all_; }
  // How many there were, those that are told no more included.
  std::uint64_t count() const { return count_; }
  // As kRefusal fields; nothing where there are none.
  std::string refusals() const;

 private:
  std::deque<std::string> all_;
  std::size_t bytes_ = 0;
  std::uint64_t count_ = 0;
  std::vector<Refusal> refusals_;
};

}  // namespace caisson::launcher
