// Coroutines of the server, and how they pass errors on.
//
// An Async<T> is a coroutine on the server's one loop (io/loop.h); what it waits for it waits for
// there, and nothing else runs at the same time, so objects of the loop need no locks. It starts
// when it is awaited, and ends with its result. co_await stands only where the compilers of the
// reference platform get it right: as the whole initialiser of a local, as the right side of an
// assignment, as a statement, after co_return, or in a range-for; `./dev lint` checks that.
// Parameters of coroutines are values, or references to what outlives them.
#pragma once

#include <boost/asio/awaitable.hpp>

#include "base/error.h"

namespace caisson::io {

template <typename T>
using Async = boost::asio::awaitable<T>;

}  // namespace caisson::io

// TRY and TRY_ASSIGN of base/error.h for coroutines: CO_TRY(co_await stream.write(text)).
#define CO_TRY(expression)                                                        \
  do {                                                                            \
    auto try_result = expression;                                                 \
    if (!try_result.has_value())                                                  \
      co_return std::unexpected<::caisson::Error>(std::move(try_result).error()); \
  } while (false)

#define CO_TRY_ASSIGN(declaration, expression) \
  CO_TRY_ASSIGN_(declaration, expression, CAISSON_JOIN(try_assign_, __LINE__))
#define CO_TRY_ASSIGN_(declaration, expression, name)                                          \
  auto name = expression;                                                                      \
  if (!name.has_value()) co_return std::unexpected<::caisson::Error>(std::move(name).error()); \
  declaration = std::move(*name)
