// The loop as src/io sees it: Boost.Asio's context and the timer that every wait is made of.
//
// Only .cpp files of src/io include this.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <list>

#include "io/loop.h"

namespace caisson::io {

namespace asio = boost::asio;

// What every co_await of Asio's own operations is given: an error is a value of the result.
inline constexpr auto kAwait = asio::as_tuple(asio::use_awaitable);

using Timer =
    asio::basic_waitable_timer<Clock, asio::wait_traits<Clock>, asio::io_context::executor_type>;

struct Loop::State {
  explicit State(unsigned threads)
      : context(1), work(asio::make_work_guard(context)), pool(threads) {}

  asio::io_context context;  // one thread runs it
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::list<asio::signal_set> signals;
  // Ends before the context: coroutines that still wait for it look at the loop's things when they
  // are destroyed.
  asio::thread_pool pool;
};

}  // namespace caisson::io
