// The lines of JSON by which a server gives a command's output and end (docs/api.yaml, Line), taken
// as their bytes come. Pure.
#pragma once

#include <caisson/sandbox.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace caisson::cli {

class OutputLines {
 public:
  struct Line {
    enum class Kind : std::uint8_t { kStarted, kOutput, kMissed, kEnd, kGoesOn } kind;
    OutputChannel channel = OutputChannel::kStdout;
    std::string bytes;
    std::uint64_t missed = 0;
    Outcome outcome;
  };

  void feed(std::string_view bytes) { buffer_ += bytes; }
  // nullopt: more bytes are needed. Error: the command was not run, with the server's reason;
  // data_loss, for what is no such line.
  Result<std::optional<Line>> next();

 private:
  std::string buffer_;
};

}  // namespace caisson::cli
