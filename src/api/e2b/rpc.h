// Calls of the Connect protocol: one message in and one out, or a stream of messages out.
//
// Both encodings are served (wire.h), and none compressed. A unary call fails with an HTTP status
// and {"code","message"}; a stream is always 200 and says in its last envelope how it ended, since
// clients look at nothing else.
#pragma once

#include <memory>
#include <optional>

#include "api/e2b/request.h"
#include "api/e2b/wire.h"
#include "http/connect.h"

namespace caisson::api::e2b {

// The longest message that is taken.
inline constexpr std::size_t kMaxMessage = 8u << 20;

enum class RpcKind : std::uint8_t { kUnary, kStream };

// nullopt: no encoding that is served (415).
std::optional<Encoding> encoding_of(std::optional<std::string_view> content_type, RpcKind kind);

// The message of a unary call. Error: also for bodies that are longer than kMaxMessage.
io::Async<Result<json::Value>> read_message(const Request& request, Encoding encoding,
                                            const WireMessage& message);
// The only message of a call that answers with a stream.
io::Async<Result<json::Value>> read_enveloped(const Request& request, Encoding encoding,
                                              const WireMessage& message);

io::Async<Status> answer_message(const Request& request, Encoding encoding,
                                 const WireMessage& message, const json::Value& value);
io::Async<Status> answer_rpc_error(const Request& request, const Error& error);

// The answer of a streaming call.
class RpcAnswer {
 public:
  RpcAnswer(const Request& request, Encoding encoding, const WireMessage& message)
      : exchange_(request.exchange), encoding_(encoding), message_(message) {}

  // Begins the answer with its first message. Error: the client has gone.
  io::Async<Status> send(const json::Value& value);
  io::Async<Status> end(const std::optional<Error>& error);

 private:
  io::Async<Status> write(std::uint8_t flags, std::string_view bytes);

  http::Exchange& exchange_;
  Encoding encoding_;
  const WireMessage& message_;
};

// Runs the coroutine that streams to a client until it ends, the client leaves, or the sandbox
// ends; then the connection is cut off without an end, as clients expect of a sandbox that was
// killed: they ask for its health and learn that it has gone.
io::Async<void> while_watched(const Request& request, io::Async<void> streaming);

// Runs the coroutine until it ends or the client leaves.
io::Async<void> while_client_stays(const Request& request, io::Async<void> work);

// Runs the coroutine until it ends or the client leaves or its deadline comes, whichever is first.
io::Async<void> while_client_waits(const Request& request, io::Async<void> work);

// Keepalive-Ping-Interval in seconds, within sensible bounds.
std::chrono::seconds ping_interval(const Request& request);

}  // namespace caisson::api::e2b
