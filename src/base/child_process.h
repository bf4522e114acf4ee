// A program that is started as a child: with no environment, nothing open but what it is given, and
// no longer life than its owner's. One thread; start() forks, so it is for small processes.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace caisson {

struct SocketPair {
  Fd ours, theirs;
};
// `type` is SOCK_STREAM or SOCK_SEQPACKET.
Result<SocketPair> make_socket_pair(int type);

// A child process that is ended and reaped at the latest on destruction.
class ChildProcess {
 public:
  ChildProcess() = default;
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  ~ChildProcess() { end(); }

  // `descriptors` become 3, 4, … in the child, -1 leaves a gap; nothing else is open there.
  Status start(const std::string& path, const std::vector<std::string>& arguments,
               std::span<const int> descriptors);
  pid_t pid() const { return pid_; }
  // Kills it when it still runs. Its wait status.
  int end();
  int wait();
  // After its end: the most memory that it or a child of its own held, in bytes.
  std::uint64_t peak_memory() const { return peak_memory_; }

 private:
  pid_t pid_ = -1;
  int status_ = 0;
  std::uint64_t peak_memory_ = 0;
};

}  // namespace caisson
