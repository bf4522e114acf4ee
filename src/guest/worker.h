// Work that may wait, in a process of its own.
//
// Files, watches and process lists belong to the sandbox: a path can lead to a fifo, a directory
// can have a million entries, another process can hold a lock. The guest forks a worker for each
// such stream; what stalls then is that worker. Before it touches anything it takes the user's ids
// and gives up every right, as a command does. It speaks the framed protocol over a socket of its
// own, with blocking calls, and the guest relays the frames (relay.h): the worker knows nothing of
// credit.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"
#include "base/proto.h"
#include "guest/stream.h"

namespace caisson::guest {

// The worker's end of its socket.
class WorkerLink {
 public:
  WorkerLink(Fd socket, std::uint32_t stream) : socket_(std::move(socket)), stream_(stream) {}

  int fd() const { return socket_.get(); }
  Status event(const proto::Fields& fields);
  Status data(std::string_view bytes);
  // The next bytes of the peer's input; nullopt once it has finished. An error where it went away
  // before that.
  Result<std::optional<std::string>> input();
  // Whether the peer waits for nothing more.
  bool given_up() const;
  // The last frame: an error, with what it is about where that is known, or the end.
  void close(const Status& status, std::optional<proto::ErrorSubject> subject = {});

 private:
  Status send(std::string_view frame);

  Fd socket_;
  std::uint32_t stream_;
  proto::Decoder decoder_;
};

// Whom a worker becomes.
enum class WorkerRights : std::uint8_t {
  kUser,  // the OPEN frame's kUser, without any right beyond that user's
  kGuest  // stays the guest's id: reads the kernel's own files alone
};

using WorkerMain = std::function<Status(const proto::FieldReader& fields, WorkerLink& link)>;

// In the forked child: becomes who it should be, does the work, reports, ends.
[[noreturn]] void run_worker(const WorkerMain& work, WorkerRights rights,
                             const proto::FieldReader& fields, const Inside& inside,
                             WorkerLink link);

// The works.
Status file_worker(const proto::FieldReader& fields, WorkerLink& link);
Status watch_worker(const proto::FieldReader& fields, WorkerLink& link);
Status process_list_worker(const proto::FieldReader& fields, WorkerLink& link);

}  // namespace caisson::guest
