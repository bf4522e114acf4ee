// One connection of HTTP/2 and its streams, as coroutines see them; libnghttp2 takes the frames
// apart and puts them together.
//
// A session works on any Stream, as the server of a sandbox's program or as the client of a true
// server. Everything that a peer can make it hold or do is bounded: streams at once, the bytes and
// the number of fields of a header section (and the frames that it comes in), bytes of bodies that
// nobody has taken yet (a peer's window opens again as they are taken, and what is sent waits for
// the peer's), how often streams may be broken off, and frames that are to be sent and cannot be.
// Server push and extended CONNECT are off. What comes is checked as RFC 9113 has it by the library
// and again by h2_message.h.
//
// run() is the session; whoever runs it holds it by a shared_ptr, as do those who open streams. A
// stream is held by the session while it is open and by whoever uses it; when its session has ended
// it says so. Belongs to the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "egress/gateway/h2_message.h"
#include "egress/rate.h"
#include "io/loop.h"
#include "io/stream.h"

// Of libnghttp2, which h2_session.cpp alone sees.
struct nghttp2_session;

namespace caisson::egress {

class H2Session;

// Why a stream ends early (RFC 9113, section 7).
enum class H2Code : std::uint32_t {
  kNoError = 0,
  kProtocolError = 1,
  kInternalError = 2,
  kRefusedStream = 7,
  kCancel = 8,
  kEnhanceYourCalm = 11,
};

// What the sessions that share it hold of bodies that nobody has taken yet. Beyond `most` the
// stream for which more comes is broken off: windows bound what one connection may hold, and this
// what all of them may.
struct H2Budget {
  std::size_t most = std::size_t{128} << 20;
  std::size_t held = 0;
};

// Whether more of the message follows what is sent.
enum class H2End : bool { kFollows, kEnds };

// One request and its answer. One coroutine may read while another writes.
class H2Stream {
 public:
  H2Stream(io::Loop& loop, std::weak_ptr<H2Session> session, std::shared_ptr<H2Budget> budget)
      : session_(std::move(session)), budget_(std::move(budget)), changed_(loop) {}
  H2Stream(const H2Stream&) = delete;
  H2Stream& operator=(const H2Stream&) = delete;
  ~H2Stream() { drop_unread(); }

  // ---- what comes
  // Of a server: the request's, once.
  H2Fields take_head() { return std::move(head_); }
  // Of a client: waits for the answer's; interim ones (1xx) are passed over. Error: unavailable,
  // the stream or the session ended; invalid, it had too many fields or bytes of them.
  io::Async<Result<H2Fields>> read_head();
  // Whether the head had too much and is not whole.
  bool head_too_large() const { return too_large_; }
  // Whether nothing but the head came, and nothing will.
  bool ended_with_head() const { return remote_ended_ && !has_body_ && trailers_.empty(); }
  // The next piece of the body, at most `most` bytes; empty: it has ended, and trailers() are
  // whole. Error: it broke off.
  io::Async<Result<std::string>> read_some(std::size_t most);
  const H2Fields& trailers() const { return trailers_; }
  // How many bytes its unread body keeps in memory.
  std::size_t kept() const { return incoming_.size(); }

  // ---- what is sent
  // A server's answer; of 100 alone several may follow. Error: the stream has ended.
  Status send_head(const H2Fields& head, H2End end);
  // Returns when the last byte is on its way. Error: the stream has ended; deadline_exceeded, the
  // peer takes nothing for a minute, which ends the stream.
  io::Async<Status> write(std::string_view bytes);
  // Once; perhaps behind the body what follows it.
  void end(H2Fields trailers);

  // Ends both directions at once.
  void reset(H2Code code);
  // Nobody reads any more; what was written goes out, the rest of what the peer sends is dropped.
  void let_go();
  // It ended before all that was to be sent had been.
  bool broken_off() const { return closed_ && !local_ended_; }
  io::Async<void> wait_broken();
  // The peer says that nothing was done for the request, which may be sent again.
  bool unprocessed() const { return unprocessed_; }

 private:
  friend class H2Session;
  friend struct H2Callbacks;
  class Writing;

  Error broken() const;
  // null: it has ended.
  H2Session* session() const;
  void drop_unread();
  void close(std::string why);
  void add_field(std::string_view name, std::string_view value);
  // What came of them is whole.
  void end_fields();
  void add_body(std::string_view bytes);

  std::weak_ptr<H2Session> session_;
  std::shared_ptr<H2Budget> budget_;
  std::int32_t id_ = 0;
  io::Event changed_;
  H2Fields block_;  // the section that is coming
  std::size_t block_bytes_ = 0;
  bool too_large_ = false, malformed_ = false;
  H2Fields head_, trailers_;
  bool has_head_ = false, has_body_ = false;
  unsigned interim_ = 0;
  std::string incoming_;
  std::size_t taken_ = 0;     // of incoming_
  std::string_view pending_;  // of write(), which waits for it
  H2Fields last_;             // to be sent behind the body
  bool ending_ = false;       // nothing follows pending_ but last_
  bool local_ended_ = false, remote_ended_ = false;
  bool abandoned_ = false, reset_by_us_ = false;
  bool closed_ = false, unprocessed_ = false;
  std::string why_;  // it ended early
};

class H2Session : public std::enable_shared_from_this<H2Session> {
 public:
  enum class Side : std::uint8_t { kServer, kClient };
  static constexpr std::uint32_t kMostStreams = 100;
  static constexpr std::size_t kMostHeadBytes = 64 * 1024;
  static constexpr std::size_t kMostFields = 200;

  H2Session(io::Loop& loop, std::unique_ptr<io::Stream> stream, Side side,
            std::shared_ptr<H2Budget> budget);
  ~H2Session();
  H2Session(const H2Session&) = delete;
  H2Session& operator=(const H2Session&) = delete;

  // Until the connection ends, which ends every stream. A server: calls `on_request` with each
  // request whose head is whole, and `may_begin` before one is; false refuses it.
  using OnRequest = std::function<void(std::shared_ptr<H2Stream>)>;
  using MayBegin = std::function<bool()>;
  static io::Async<void> run(std::shared_ptr<H2Session> self, OnRequest on_request,
                             MayBegin may_begin);

  // Before run(), of a server: called once for each request whose head is not HTTP/2's, and which
  // is therefore nobody's: its stream ends by itself.
  void on_malformed(std::function<void()> tell) { on_malformed_ = std::move(tell); }

  // A client's: whether one more request may be sent now.
  bool may_open() const;
  // Whether a field of it may stay in what both sides remember of fields (HPACK).
  enum class Remember : bool { kNever, kMay };
  // Sends a request. Error: unavailable, may_open() is false; invalid, it is too long.
  Result<std::shared_ptr<H2Stream>> open(const H2Fields& head, H2End end, Remember remember);

  // No more streams begin, and the connection ends when what is to be sent is sent.
  void say_goodbye();
  // At once.
  void close();
  bool ended() const { return ended_; }
  // Since when there is no stream; nullopt: there are some.
  std::optional<io::Clock::time_point> idle_since() const { return idle_since_; }
  // Waits until a stream begins or ends, or the time.
  io::Async<void> wait_change(io::Clock::time_point until);

 private:
  friend class H2Stream;
  friend struct H2Callbacks;
  static io::Async<void> read_all(H2Session& self);
  static io::Async<void> write_all(H2Session& self);
  void end_streams(const std::string& why);
  void consume(const H2Stream& stream, std::size_t bytes);
  void wake() { writable_.notify(); }
  std::shared_ptr<H2Stream> add_stream(std::int32_t id);
  void remove_stream(std::int32_t id, std::uint32_t code);

  struct Delete {
    void operator()(nghttp2_session* session) const;
  };
  io::Loop& loop_;
  std::unique_ptr<io::Stream> stream_;
  const Side side_;
  const std::shared_ptr<H2Budget> budget_;
  std::unique_ptr<nghttp2_session, Delete> session_;
  std::map<std::int32_t, std::shared_ptr<H2Stream>> streams_;
  OnRequest on_request_;
  MayBegin may_begin_;
  std::function<void()> on_malformed_;
  io::Event writable_, drained_, changed_;
  TokenBucket resets_;
  std::optional<io::Clock::time_point> idle_since_;
  bool ended_ = false;
};

}  // namespace caisson::egress
