// The processes of a sandbox as the data plane's clients know them: kept commands of its
// supervisor, found by the number that they have inside or by their tag.
//
// Nothing of them is kept here: every call asks the supervisor, so a server that was started again
// knows all that the one before it did. Shared by process.cpp and process_stream.cpp.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/e2b/process_state.h"
#include "api/e2b/request.h"

namespace caisson::api::e2b {

struct Process {
  std::uint32_t number = 0;  // the supervisor's
  std::uint32_t pid = 0;     // inside
  ProcessLabel label;
  bool running = false;
  bool takes_input = false;
};

io::Async<Result<std::vector<Process>>> list_processes(const Request& request);

// The process that a message's `process` names; the newest, and one that runs before one that has
// ended, where several fit. Error: not_found "process with pid 7 not found".
enum class Wanted : std::uint8_t { kRunning, kAny };
io::Async<Result<Process>> select_process(const Request& request, const json::Value& message,
                                          Wanted wanted);

// A stream that follows a process from now on, once the supervisor has said that it does. Error:
// not_found where it has been forgotten meanwhile.
io::Async<Result<std::unique_ptr<fleet::BoxStream>>> join_process(const Request& request,
                                                                  std::uint32_t number);

// The field of a terminal's size. Error: invalid_argument.
Result<std::string> terminal_size(const json::Value& size);

}  // namespace caisson::api::e2b
