// One connection of the server: its bytes, its requests one after another, and its end.
//
// A coroutine (run) reads heads and calls the handler. Besides it there may be a read ahead under
// way, which finds out whether the client has gone while a handler is busy; it appends to the same
// buffer, and whoever wants to read next waits for it. Held by shared_ptr by those coroutines.
// Only .cpp files of src/http include this.
#pragma once

#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/secret.h"
#include "http/codec.h"
#include "http/server_state.h"

namespace caisson::http {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Server::State> server, std::unique_ptr<io::Stream> stream,
             Server::Transport transport, Handler handler);
  ~Connection();

  static io::Async<void> run(std::shared_ptr<Connection> self);

  Server::State& server() { return *server_; }
  io::Stream& stream() { return *stream_; }
  bool secure() const { return transport_ == Server::Transport::kTls; }
  // Is in the server's list of idle connections, or no more.
  void enter_idle();
  void leave_idle();
  // Bytes that came and nobody has taken yet. Wiped when nothing is in it between two requests, and
  // wherever it grows out of its memory, since bodies may be secrets.
  using Buffer = std::basic_string<char, std::char_traits<char>, WipingAllocator<char>>;
  Buffer& buffer() { return buffer_; }
  bool reading() const { return reading_; }
  // A read goes straight into the buffer, whose end is not bytes that came.
  bool filling() const { return filling_; }
  // The client has ended the connection, or it broke.
  bool gone() const { return gone_; }

  // Waits for more bytes in the buffer. Error: the end, a break, or nothing in that time.
  static io::Async<Status> fill(std::shared_ptr<Connection> self, std::size_t room,
                                io::Clock::duration timeout);
  // An error means that the client has gone.
  static io::Async<Status> write(std::shared_ptr<Connection> self, std::string_view bytes);
  void close(io::Stream::Close how);

  // Returns when the client has gone, when that cannot be seen, or when request `number` has ended.
  // A client that sends much behind a request is made to go.
  static io::Async<void> watch(std::shared_ptr<Connection> self, std::uint64_t number);
  std::uint64_t number() const { return number_; }
  // Whether bytes that come belong to the request's body; set by the exchange.
  void set_body_open(bool open) { body_open_ = open; }

 private:
  class Reading;
  class Writing;
  enum class Next : std::uint8_t {
    kRequest,  // the next one on this connection
    kLinger,   // the answer was sent; the client may still be sending
    kClose,
  };
  struct Head {
    std::optional<ParsedRequest> request;
    std::optional<Refusal> refusal;  // neither: the end
  };
  static io::Async<Head> read_head(std::shared_ptr<Connection> self);
  static io::Async<Status> wait_for_request(std::shared_ptr<Connection> self);
  static io::Async<Next> serve(std::shared_ptr<Connection> self, ParsedRequest request);
  static io::Async<void> refuse(std::shared_ptr<Connection> self, Refusal refusal);
  static io::Async<void> read_ahead(std::shared_ptr<Connection> self);
  void lost();

  std::shared_ptr<Server::State> server_;
  // Before the stream, which may stand on what the handler holds, and so ends after it.
  const Handler handler_;
  std::unique_ptr<io::Stream> stream_;
  const Server::Transport transport_;
  Buffer buffer_;
  io::Event changed_;         // a read ended, the client has gone, a request has ended
  std::uint64_t number_ = 0;  // of the request that is being served
  bool reading_ = false;
  bool filling_ = false;
  bool gone_ = false;
  bool body_open_ = false;
  std::list<Connection*>::iterator place_;
  std::optional<std::list<Connection*>::iterator> idle_place_;
};

// Ends what we send, and drops what the client still sends for a moment, so that an answer is not
// lost to a reset.
io::Async<void> linger(io::Stream& stream);
// An answer of the server itself, {"code":…,"message":…}, that closes the connection.
std::string closing_answer(Server::State& server, int status, std::string_view sentence);

}  // namespace caisson::http
