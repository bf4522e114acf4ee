#include "io/race.h"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <utility>

namespace caisson::io {

Async<void> race(Async<void> one, Async<void> other) {
  // The one that is cancelled ends by an exception of Asio's, which this operator keeps.
  using boost::asio::experimental::awaitable_operators::operator||;
  co_await (std::move(one) || std::move(other));
}

Async<void> both(Async<void> one, Async<void> other) {
  using boost::asio::experimental::awaitable_operators::operator&&;
  co_await (std::move(one) && std::move(other));
}

}  // namespace caisson::io
