#include "io/relay.h"

#include <utility>

namespace caisson::io {
namespace {

constexpr std::size_t kRoom = 16 * 1024;

// False: it broke.
Async<bool> pass_on(Stream& from, std::string early, Stream& to) {
  std::string piece = std::move(early);
  for (;;) {
    if (!piece.empty()) {
      const Status written = co_await to.write(piece);
      if (!written.has_value()) co_return false;
    }
    piece.resize(kRoom);
    const auto count = co_await from.read(piece);
    if (!count.has_value()) co_return false;
    if (*count == 0) break;
    piece.resize(*count);
  }
  co_await to.finish();
  co_return true;
}

}  // namespace

Async<void> relay(Loop& loop, Stream& one, std::string early_of_one, Stream& other,
                  std::string early_of_other) {
  Event ended(loop);
  bool back_ended = false;
  auto back = [&](std::string early) -> Async<void> {
    const bool whole = co_await pass_on(other, std::move(early), one);
    if (!whole) {
      one.close();
      other.close();
    }
    back_ended = true;
    ended.notify();
  };
  loop.spawn(back(std::move(early_of_other)));
  const bool whole = co_await pass_on(one, std::move(early_of_one), other);
  if (!whole) {
    one.close();
    other.close();
  }
  while (!back_ended) co_await ended.wait();
}

}  // namespace caisson::io
