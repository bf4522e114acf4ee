// The server's log: one JSON object a line, to a descriptor (stderr), for whoever collects it.
//
// A line has time, level and message, then the fields that the caller gave. Who calls sees to it
// that no field is a secret: keys, tokens, queries of URLs (signatures are in them), bodies and
// variables are never logged. Texts are cut, so that a client does not decide how long a line is.
// A line is one write, by a thread of the log's own: whoever reads it may stall without stalling
// anybody else. What waits for it is bounded; lines beyond are lost, counted, and the log says so
// once it goes on. Any thread may call it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace caisson::io {

class Log {
 public:
  enum class Level : std::uint8_t { kDebug, kInfo, kWarning, kError };

  static constexpr std::size_t kMostQueued = 1u << 20;  // bytes
  // `descriptor` outlives it. What is below `least` is not written.
  Log(int descriptor, Level least, std::size_t most_queued = kMostQueued);
  // Waits a second at most for what is still to be written.
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  struct Field {
    std::string_view key;
    json::Value value;  // a text, a number or a truth
  };
  void write(Level level, std::string_view message, std::initializer_list<Field> fields = {}) const;
  bool writes(Level level) const { return level >= least_; }
  // Until all is written that there was, or for so long. Whether it is.
  bool flush(std::chrono::milliseconds patience) const;
  // Lines that there was no room for.
  std::uint64_t lost() const;

 private:
  struct Queue;
  std::shared_ptr<Queue> queue_;  // the thread's too, which may be left behind in a write
  Level least_;
  std::size_t most_queued_;
};

// "debug", "info", "warning" or "error".
std::optional<Log::Level> parse_level(std::string_view text);

}  // namespace caisson::io
