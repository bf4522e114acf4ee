// What a template starts in each of its sandboxes, and the wait until it is ready.
//
// The start command runs on as a kept command, whoever comes and goes; the ready command is tried
// again and again until it succeeds. A start command that fails before that has failed for good. On
// the loop.
#pragma once

#include <chrono>
#include <compare>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "fleet/box_client.h"

namespace caisson::fleet {

struct StartCommand {
  std::string command;  // for a login bash; empty: nothing is started
  std::string ready;    // the same; empty: what has started is ready
  std::string label;    // of the kept command
  auto operator<=>(const StartCommand&) const = default;
};

// As a JSON object, and back. Error: invalid_argument.
json::Value start_json(const StartCommand& what);
Result<StartCommand> parse_start(const json::Value& value);

struct StartOptions {
  std::string user;
  std::map<std::string, std::string> env;
  std::chrono::milliseconds ready_time = std::chrono::seconds(60);
  // Without a ready command: so long the start command is watched for a failure.
  std::chrono::milliseconds watch_time{0};
  // What both commands say; may be empty.
  std::function<void(std::string_view bytes)> output;
};

// The variables that every command of a sandbox has, whoever starts it.
std::map<std::string, std::string> own_variables(const std::string& id);

// Errors: failed_precondition (the start command failed), deadline_exceeded (not ready in time),
// and those of the sandbox.
io::Async<Status> start_and_wait(io::Loop& loop, BoxClient& client, StartCommand what,
                                 StartOptions options);

}  // namespace caisson::fleet
