// The server's log: one JSON object a line, to a descriptor (stderr), for whoever collects it.
//
// A line has time, level and message, then the fields that the caller gave. Who calls sees to it
// that no field is a secret: keys, tokens, queries of URLs (signatures are in them), bodies and
// variables are never logged. Texts are cut, so that a client does not decide how long a line is.
// Any thread: a line is one write.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"

namespace caisson::io {

class Log {
 public:
  enum class Level : std::uint8_t { kDebug, kInfo, kWarning, kError };

  // `descriptor` outlives it. What is below `least` is not written.
  Log(int descriptor, Level least) : descriptor_(descriptor), least_(least) {}

  struct Field {
    std::string_view key;
    json::Value value;  // a text, a number or a truth
  };
  void write(Level level, std::string_view message, std::initializer_list<Field> fields = {}) const;
  bool writes(Level level) const { return level >= least_; }

 private:
  int descriptor_;
  Level least_;
};

// "debug", "info", "warning" or "error".
std::optional<Log::Level> parse_level(std::string_view text);

}  // namespace caisson::io
