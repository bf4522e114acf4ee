// Starting caisson-image-worker with id maps that are given as text, and talking to it.
//
// The worker has no environment, no descriptor but those it is given (3 and on), and ends when this
// object does. One thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/sys.h"

namespace caisson::image {

class WorkerChild {
 public:
  using Clock = std::chrono::steady_clock;

  // `descriptors` come after the report socket; -1 leaves a number out. The maps are uid_map(5)
  // lines. Error: precondition where they cannot be written, or there are no user namespaces.
  static Result<WorkerChild> start(const std::vector<std::string>& arguments,
                                   std::span<const int> descriptors, const std::string& uid_lines,
                                   const std::string& gid_lines, Clock::time_point deadline);
  WorkerChild(WorkerChild&& other) noexcept;
  WorkerChild& operator=(WorkerChild&&) = delete;
  ~WorkerChild();

  int report_fd() const { return report_.get(); }
  // The next message. Error: that the worker ended without one.
  Result<sys::Message> receive();
  // What a worker's last word means where it tells of a failure.
  static Error failure(std::string_view message);

 private:
  WorkerChild(Fd report, pid_t pid) : report_(std::move(report)), pid_(pid) {}
  Status map_ids(const std::string& uid_lines, const std::string& gid_lines) const;

  Fd report_;
  pid_t pid_ = -1;
};

}  // namespace caisson::image
