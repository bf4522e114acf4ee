// The client side of caisson-image-fetch: starts one, sends it requests, and takes their bodies,
// each from a pipe of its own, into memory or into a file. What the worker says and sends is
// hostile: sizes are enforced here too, and nobody but this process has the files. The worker ends
// when this object or this process does. One thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "image/registry/fetch_protocol.h"

namespace caisson::image {

// Where the body of a good answer goes. Without a file it is kept in memory.
struct FetchSink {
  int file_fd = -1;          // borrowed, written with pwrite
  std::uint64_t offset = 0;  // where the first byte of a 206 goes; of a 200 it is 0
  std::uint64_t limit = 0;   // the most bytes that the file, or the text, may have then
};

struct FetchOutcome {
  FetchHead head;  // status 0: there was no answer
  FetchResult result;
  std::string body;             // of an answer in memory, and of every answer but 200 and 206
  std::uint64_t received = 0;   // bytes of the body
  std::uint64_t file_size = 0;  // what the file has now, where the body went there

  bool good() const {
    return result.end == FetchEnd::kDone && (head.status == 200 || head.status == 206);
  }
};

class Fetcher {
 public:
  // Error: the worker is not installed, or cannot be confined here.
  static Result<Fetcher> start();
  Fetcher(Fetcher&& other) noexcept;
  Fetcher& operator=(Fetcher&&) = delete;
  ~Fetcher();

  // Begins; `request.id` is given here, and `request.limit` follows from the sink.
  Result<std::uint32_t> begin(FetchRequest request, const FetchSink& sink);
  // Takes what has come for any of them, waiting for it no longer than `wait`.
  Status pump(std::chrono::milliseconds wait);
  bool is_done(std::uint32_t id) const;
  // Of one that is done.
  FetchOutcome take(std::uint32_t id);
  // Bytes of its body that have come by now.
  std::uint64_t received(std::uint32_t id) const;
  // Forgets it, whatever state it is in.
  void abandon(std::uint32_t id);

 private:
  struct Slot {
    FetchSink sink;
    Fd pipe;  // closed at its end
    FetchOutcome outcome;
    bool ended = false;
    bool cut = false;  // ended by this side; the worker's own end may still come
  };
  Fetcher() = default;
  Status take_messages();
  Status take_bytes(Slot& slot);
  Error worker_failure();

  pid_t pid_ = -1;
  Fd socket_;
  std::uint32_t last_id_ = 0;
  std::map<std::uint32_t, Slot> slots_;
  std::vector<char> buffer_;
};

}  // namespace caisson::image
