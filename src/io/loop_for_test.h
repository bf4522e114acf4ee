// For tests: runs one coroutine to its end on a loop of its own. Assertions in coroutines are
// EXPECTs, since a coroutine cannot `return`.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <memory>
#include <utility>

#include "io/loop.h"
#include "io/stream.h"

namespace caisson::io {

// The body's closure must outlive the call: `auto body = [&]() -> Async<void> {…}; run(loop,
// body)`.
template <typename Body>
void run_on(Loop& loop, Body& body) {
  auto whole = [&]() -> Async<void> {
    co_await body();
    loop.stop();
  };
  loop.spawn(whole());
  loop.run();
}

// Two connected streams.
inline std::array<std::unique_ptr<Stream>, 2> stream_pair(Loop& loop) {
  int ends[2];
  VERIFY(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  auto one = adopt(loop, Fd(ends[0]));
  auto other = adopt(loop, Fd(ends[1]));
  VERIFY(one.has_value() && other.has_value());
  return {std::move(*one), std::move(*other)};
}

inline Async<void> send(Stream& stream, std::string bytes) {
  const Status sent = co_await stream.write(bytes);
  EXPECT_TRUE(sent.has_value());
}

// All that comes until the end, or until the connection breaks.
inline Async<std::string> read_to_end(Stream& stream) {
  std::string all;
  std::array<char, 4096> piece;
  for (;;) {
    const auto count = co_await stream.read(piece);
    if (!count.has_value() || *count == 0) co_return all;
    all.append(piece.data(), *count);
  }
}

}  // namespace caisson::io
