// Byte streams of the server: TCP, unix sockets, and TLS over either, behind one interface.
//
// A Stream has one reader and one writer at a time, which may be different coroutines. A call that
// waits when close() or the Stream's end comes ends with Code::kCancelled. Nothing is buffered
// beyond what one call has. No Stream and no Listener outlives its loop.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "io/async.h"
#include "io/loop.h"

namespace caisson::io {

class Stream {
 public:
  virtual ~Stream() = default;
  // At least one byte; 0: the peer will send no more. Error: unavailable where the connection
  // broke, deadline_exceeded after the time of set_timeout().
  virtual Async<Result<std::size_t>> read(std::span<char> into) = 0;
  // Until a read would not wait: there are bytes, an end or an error. So whoever reads seldom needs
  // to hold no room meanwhile. Returns at once where that shows by reading alone, as with TLS.
  // Error: as of read(), cancelled and deadline_exceeded alone.
  virtual Async<Status> wait_readable() { co_return Status(); }
  // Whether nothing has come that was not read, and no end, as far as shows without waiting. False
  // too where that cannot be said.
  virtual bool quiet() const { return false; }
  // All of it; returns when the kernel has taken the last byte, so whoever awaits it is held back
  // by a slow reader. After an error, or where the coroutine is cancelled (io/race.h), a part may
  // have been sent: nothing more can be written that makes sense. A read that is cancelled loses
  // nothing.
  virtual Async<Status> write(std::string_view bytes) = 0;
  // The peer sees the end of what we send; reading goes on.
  virtual Async<void> finish() = 0;
  // Ends both directions at once and wakes who waits. With kReset the peer gets a reset instead of
  // an end, so that it cannot take what it has for the whole.
  enum class Close : unsigned char { kPlain, kReset };
  virtual void close(Close how = Close::kPlain) = 0;
  // How long a read or a write that begins from now on may make no progress; zero: for ever (as it
  // is at first).
  virtual void set_timeout(Clock::duration time) = 0;
  // The peer's address as text ("127.0.0.1:5000"); empty for unix sockets.
  virtual std::string peer() const = 0;
  // Where the peer connected to, before a redirection of this network namespace (netfilter's) led
  // the connection to us; the address that it has reached where there was none. As peer().
  virtual std::string original_destination() const { return {}; }
  // The host name that a TLS client asked for, as it sent it; empty without one and without TLS.
  virtual std::string server_name() const { return {}; }
  // What TLS agreed on by ALPN ("h2"); empty where nothing was, and without TLS.
  virtual std::string protocol() const { return {}; }
};

// Listening sockets, bound by sync functions since that is done once at start.
class Listener {
 public:
  virtual ~Listener() = default;
  // The next connection. Out of descriptors, or whatever else may pass, it waits and tries again.
  // Error: cancelled by close().
  virtual Async<Result<std::unique_ptr<Stream>>> accept() = 0;
  virtual void close() = 0;
  // "127.0.0.1:3000"; with the port that the kernel chose where 0 was asked for.
  virtual std::string address() const = 0;
  virtual unsigned short port() const = 0;
};

// `address`: "HOST:PORT" or "[V6]:PORT" with a numeric host.
Result<Fd> bind_tcp(const std::string& address);
Result<std::unique_ptr<Listener>> listen_tcp(Loop& loop, const std::string& address);
// A listening stream socket of any family that somebody else made (it becomes non-blocking).
Result<std::unique_ptr<Listener>> adopt_listener(Loop& loop, Fd socket);

// Connects; Error: unavailable, with the address.
Async<Result<std::unique_ptr<Stream>>> connect_unix(Loop& loop, std::string path);
Async<Result<std::unique_ptr<Stream>>> connect_tcp(Loop& loop, std::string address);
// A connected stream socket of any family that somebody else made.
Result<std::unique_ptr<Stream>> adopt(Loop& loop, Fd socket);

}  // namespace caisson::io
