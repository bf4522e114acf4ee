#include "image/worker_child.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/kernel_abi.h"
#include "base/paths.h"
#include "image/reference.h"
#include "image/worker_protocol.h"

namespace caisson::image {

Status WorkerChild::start(const std::vector<std::string>& arguments,
                          std::span<const int> descriptors, const std::string& uid_lines,
                          const std::string& gid_lines, Clock::time_point deadline) {
  TRY_ASSIGN(const std::string program, helper_binary("caisson-image-worker"));
  TRY_ASSIGN(SocketPair sockets, make_socket_pair(SOCK_SEQPACKET));
  report_ = std::move(sockets.ours);
  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<int> all = {sockets.theirs.get()};
  all.insert(all.end(), descriptors.begin(), descriptors.end());
  TRY(child_.start(program, words, all));
  sockets.theirs.reset();
  pollfd entry{report_.get(), POLLIN, 0};
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  const auto wait_ms = static_cast<int>(std::clamp<std::int64_t>(left, 0, 3'600'000));
  if (TEMP_FAILURE_RETRY(::poll(&entry, 1, wait_ms)) <= 0)
    return fail(Error(Code::kDeadlineExceeded, "the image worker did not start in time"));
  TRY_ASSIGN(const sys::Message hello, receive());
  if (hello.bytes != std::string_view(&kWorkerReady, 1)) return fail(failure(hello.bytes));
  TRY(write_id_maps(child_.pid(), uid_lines, gid_lines));
  return sys::send_message(report_.get(), std::string_view(&kWorkerGo, 1), {});
}

WorkerChild::~WorkerChild() {
  if (child_.pid() <= 0) return;
  (void)child_.end();
  // The one that does the work is a child of that process and dies with it, but not at the same
  // instant: it holds what it was given until the last copy of the socket is closed.
  char buffer[kMaxWorkerMessage];
  while (::recv(report_.get(), buffer, sizeof buffer, 0) > 0) {
  }
}

Result<sys::Message> WorkerChild::receive() {
  TRY_ASSIGN(sys::Message message, sys::recv_message(report_.get(), kMaxWorkerMessage));
  if (message.bytes.empty()) return fail(failure(message.bytes));
  return message;
}

Error WorkerChild::failure(std::string_view message) {
  if (message.empty()) return Error::internal("the image worker ended without a word");
  if (message.size() >= 2 && message[0] == kWorkerError) {
    const auto code = static_cast<Code>(message[1]);
    const bool known = code >= Code::kCancelled && code <= Code::kUnauthenticated;
    return {known ? code : Code::kUnknown, printable(message.substr(2), kMaxWorkerMessage)};
  }
  return Error::internal("the image worker said something unexpected: " + printable(message));
}

}  // namespace caisson::image
