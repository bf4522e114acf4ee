#include "egress/gateway/pass.h"

#include <string_view>
#include <utility>

#include "io/race.h"

namespace caisson::egress {
namespace {

using io::Async;

// Of room that nobody has.
constexpr std::size_t kMostSpare = 8;

// One piece, after one of `last` bytes: how long it was; 0: the end. Nothing is held before there
// is something to read.
Async<Result<std::size_t>> pass_piece(PassRoom& room, io::Stream& from, io::Stream& to,
                                      std::size_t last) {
  // After a whole piece there is probably more.
  if (last < kPassPiece) CO_TRY(co_await from.wait_readable());
  const PassRoom::Lent lent(room);
  CO_TRY_ASSIGN(const std::size_t count, co_await from.read(lent.bytes()));
  const std::string_view piece(lent.bytes().data(), count);
  if (count > 0) CO_TRY(co_await to.write(piece));
  co_return count;
}

Async<void> pass(PassRoom& room, io::Stream& from, io::Stream& to) {
  std::size_t last = 0;
  for (;;) {
    const auto count = co_await pass_piece(room, from, to, last);
    if (!count.has_value()) {
      from.close(io::Stream::Close::kReset);
      to.close(io::Stream::Close::kReset);
      co_return;
    }
    last = *count;
    if (last > 0) continue;
    co_await to.finish();
    co_return;
  }
}

}  // namespace

PassRoom::Lent::Lent(PassRoom& from) : from_(from) {
  ++from_.lent_;
  if (from_.spare_.empty()) {
    bytes_ = std::make_unique_for_overwrite<char[]>(kPassPiece);
  } else {
    bytes_ = std::move(from_.spare_.back());
    from_.spare_.pop_back();
  }
}

PassRoom::Lent::~Lent() {
  --from_.lent_;
  if (from_.spare_.size() < kMostSpare) from_.spare_.push_back(std::move(bytes_));
}

io::Async<void> pass_both(PassRoom& room, io::Stream& one, io::Stream& other) {
  co_await io::both(pass(room, one, other), pass(room, other, one));
}

}  // namespace caisson::egress
