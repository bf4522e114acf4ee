// One caisson-image-worker as its starter sees it: starts it, writes its id maps, sends it the
// bytes of a file, enforces time limits, and receives what it says, which is never trusted further
// than its form, for it has read hostile bytes. The worker ends when this object or the thread that
// made it does. One thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/child_process.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/sha256.h"
#include "image/ids.h"

namespace caisson::image {

// A file's bytes from its start on their way into a socket, hashed as they go.
class Feed {
 public:
  // Borrows both; sends exactly `size` bytes.
  Feed(int socket_fd, int file_fd, std::uint64_t size);
  // The socket to wait for; -1 once everything is sent or nobody takes more.
  int fd() const { return open_ ? socket_fd_ : -1; }
  std::uint64_t done() const { return offset_; }
  // Sends what the socket takes now. Error: data_loss where the file has become shorter.
  Status step();
  // The SHA-256 of the whole, once; hashes what has not been sent too.
  Result<std::string> digest();

 private:
  Status refill();

  int socket_fd_, file_fd_;
  bool open_ = true;
  std::vector<char> buffer_;
  std::size_t held_ = 0, sent_ = 0;
  std::uint64_t size_, offset_ = 0;
  Sha256 hash_;
};

// Writes the maps (uid_map(5) lines) of a user namespace that the process has just made: directly
// as root or where they are of one id, else by newuidmap and newgidmap. Error: precondition where
// those are missing, permission_denied where they refuse.
Status write_id_maps(pid_t pid, const std::string& uid_lines, const std::string& gid_lines);

class WorkerClient {
 public:
  WorkerClient() = default;
  // Waits until the worker has let go of everything.
  ~WorkerClient();

  // `descriptors` follow the report socket, from 4 on. Error: precondition where this host has no
  // user namespaces.
  Status start(const std::vector<std::string>& arguments, std::span<const int> descriptors,
               const IdMapping& ids, std::chrono::milliseconds limit);
  Status send(char kind, std::string_view text);
  // The next message, within `limit` from now; feeds the file meanwhile. `fed` is called after each
  // piece. Error: deadline_exceeded; else as error_of() says.
  Result<std::string> receive(std::chrono::milliseconds limit, Feed* feed = nullptr,
                              const std::function<void()>& fed = {});
  // receive(), where only a message of this kind is no error. Its text.
  Result<std::string> expect(char kind, std::chrono::milliseconds limit, Feed* feed = nullptr,
                             const std::function<void()>& fed = {});
  // What a message means that is no success: invalid for kWorkerRefused, precondition for
  // kWorkerFailed, internal else.
  Error error_of(std::string_view message);
  // Ends it, where possible by itself. The most memory that it held, in bytes.
  std::uint64_t end();

 private:
  void stop();

  ChildProcess child_;
  Fd report_;
};

}  // namespace caisson::image
