// What the data plane knows of a process beyond what the supervisor does: its label, and how its
// end is told. Pure.
//
// The label travels with a kept command and comes back with the supervisor's list, so that a server
// that was started again knows what the one before it started.
#pragma once

#include <caisson/result.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace caisson::api::e2b {

enum class Terminal : std::uint8_t { kNone, kPty };

struct ProcessLabel {
  json::Value config = json::Value::object();  // ProcessConfig (messages.h)
  std::optional<std::string> tag;
  Terminal terminal = Terminal::kNone;
};

inline constexpr std::size_t kMaxTag = 1024;

// At most proto::kMaxLabel bytes: where the configuration is too long for that its variables are
// left out, then its arguments are cut.
std::string encode_label(const ProcessLabel& label);
// An empty one for what is none of ours.
ProcessLabel decode_label(std::string_view text);

// EndEvent (messages.h). Error: internal, where it was our fault and not the program's end.
Result<json::Value> end_event(const Outcome& outcome);

}  // namespace caisson::api::e2b
