// An HTTP/1.1 server over any Stream: reads requests, calls a handler, keeps connections alive.
//
// The server bounds everything that a client can make it hold or wait for (Limits). A handler is a
// coroutine that gets one Exchange and answers it; what it leaves unread of the body is read and
// dropped up to a bound, or the connection is closed. An answer that was begun and not finished
// when the handler ends resets the connection, so that a client never takes a part for the whole.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "http/message.h"
#include "io/stream.h"

namespace caisson::http {

struct Limits {
  std::size_t head_bytes = 32 * 1024;  // request line and headers together; more: 431
  std::size_t headers = 128;
  // From the first byte to the end of the head; else 408.
  std::chrono::milliseconds head_time = std::chrono::seconds(10);
  // Between requests on one connection.
  std::chrono::milliseconds idle_time = std::chrono::seconds(620);
  // Without a byte of the body; else reading it is an error.
  std::chrono::milliseconds body_time = std::chrono::seconds(60);
  // In which the client takes nothing; else the connection ends.
  std::chrono::milliseconds write_time = std::chrono::seconds(60);
  std::size_t connections = 12000;  // at once; one without a request makes room, else 503
  // Of bodies that handlers hold, of all requests together (Exchange::hold()).
  std::size_t held_bytes = 256u << 20;
  // Whether answers get an X-Request-Id of the server's; false for who passes others' answers on.
  bool request_ids = true;
};

// One request and its answer. Owned by the server, borrowed by the handler while it runs.
class Exchange {
 public:
  virtual ~Exchange() = default;

  virtual const RequestHead& request() const = 0;
  // Of "*" and of CONNECT the path is the target as it came, and there are no segments.
  const Target& target() const { return target_; }
  // A number of this request for logs and the answer's X-Request-Id.
  const std::string& id() const { return id_; }
  virtual std::string peer() const = 0;
  // Whether it came over TLS.
  virtual bool secure() const = 0;

  // The next piece of the body, at most `most` bytes; empty: it has ended. Sends "100 Continue"
  // first where the client waits for it. Error: malformed or broken off.
  virtual io::Async<Result<std::string>> read_some(std::size_t most) = 0;
  // The whole body, which is held() until the exchange ends. Error: resource_exhausted where it is
  // longer than `most` bytes (413); that of hold().
  io::Async<Result<std::string>> read_all(std::size_t most);
  // For whoever keeps pieces of the body until it has all of something: counts so many more bytes
  // as held by this request, until let_go() or its end. Error: unavailable where all requests
  // together hold as much as they may (503).
  virtual Status hold(std::size_t bytes) = 0;
  virtual void let_go() = 0;
  // What Content-Length says; nullopt: chunked. 0: there is none.
  virtual std::optional<std::uint64_t> body_length() const = 0;

  // The whole answer. Of the head only what the handler knows is its own: the framing, Date,
  // X-Request-Id and Connection are the server's. The answers to HEAD, 204 and 304 go without the
  // body. Error: the head cannot be written as it is (nothing was sent), the client has gone.
  virtual io::Async<Status> respond(ResponseHead head, std::string body) = 0;
  // An answer in pieces: with a Content-Length in `head` as many bytes as it says, else chunked (a
  // client of HTTP/1.0 gets the connection's end instead). Each write is on its way when it
  // returns.
  virtual io::Async<Status> begin(ResponseHead head) = 0;
  virtual io::Async<Status> write(std::string_view bytes) = 0;
  virtual io::Async<Status> end() = 0;
  virtual bool begun() const { return begun_; }
  // Ends the connection without an end of the answer: the client sees that it is not whole.
  virtual void abort() = 0;
  // Waits until the client has gone, without reading its body. For handlers that wait for something
  // else beside it. Returns early where a body that nobody reads hides it. A client that sends more
  // than some kilobytes of further requests meanwhile is cut off, and so has gone.
  virtual io::Async<void> wait_gone() = 0;
  // Calls `call` on the loop when the client has gone while the handler runs, as far as that can be
  // seen (as wait_gone()); forgotten when the handler ends. One at a time.
  virtual void on_gone(std::function<void()> call) = 0;
  virtual bool gone() const = 0;

  // After an answer 101 (or 2xx to CONNECT) that this call writes: the bare connection, for as long
  // as the handler runs, and what came behind the head already. The connection ends with the
  // handler, and no time-out but those of the handler holds in it. Error: failed_precondition where
  // the client did not ask for it, or wait_gone() or on_gone() read ahead.
  struct Upgraded {
    io::Stream* stream;
    std::string early;
  };
  virtual io::Async<Result<Upgraded>> upgrade(ResponseHead head) = 0;

 protected:
  Target target_;
  std::string id_;
  bool begun_ = false;
};

using Handler = std::function<io::Async<void>(Exchange&)>;

class Server {
 public:
  Server(io::Loop& loop, Limits limits, Handler handler);
  ~Server();

  // Serves one listener until drain() or the listener's end. `secure`: for Exchange::secure().
  enum class Transport : std::uint8_t { kPlain, kTls };
  void serve(std::unique_ptr<io::Listener> listener, Transport transport = Transport::kPlain);
  // Serves one connection that somebody else accepted, with a handler of its own. Where there are
  // too many it is told so instead.
  void take(std::unique_ptr<io::Stream> stream, Transport transport, Handler handler);
  // No more connections, none is kept alive; returns when every request whose head has come has
  // ended, or at the time, when what is left is cut off.
  io::Async<void> drain(io::Clock::time_point until);

  struct Counts {
    std::uint64_t connections = 0, connections_total = 0, requests_total = 0, refused_total = 0;
  };
  Counts counts() const;

  // Exchange::hold() and let_go() for whoever serves requests beside this server, out of the same
  // Limits::held_bytes.
  Status hold(std::size_t bytes);
  void let_go(std::size_t bytes);

  struct State;  // for src/http alone

 private:
  std::shared_ptr<State> state_;
};

}  // namespace caisson::http
