// Starting caisson-image-worker with id maps that are given as text, and exchanging messages that
// may hold descriptors with it. The worker has no environment, no descriptor but those it is given
// (3 and on), and ends when this object does. One thread.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/sys.h"
#include "image/worker_client.h"

namespace caisson::image {

class WorkerChild {
 public:
  using Clock = std::chrono::steady_clock;

  WorkerChild() = default;
  // Waits until the worker has let go of everything.
  ~WorkerChild();

  // `descriptors` come after the report socket; -1 leaves a number out. The maps are uid_map(5)
  // lines. Error: precondition where they cannot be written, or there are no user namespaces.
  Status start(const std::vector<std::string>& arguments, std::span<const int> descriptors,
               const std::string& uid_lines, const std::string& gid_lines,
               Clock::time_point deadline);

  int report_fd() const { return report_.get(); }
  // The next message. Error: that the worker ended without one.
  Result<sys::Message> receive();
  // What a worker's last word means where it tells of a failure.
  static Error failure(std::string_view message);

 private:
  Fd report_;
  ChildProcess child_;
};

}  // namespace caisson::image
