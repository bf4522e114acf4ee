// The server's event loop: one thread that runs every coroutine, and a few others for what blocks.
//
// main makes one Loop, spawns what listens, and calls run(). Everything that belongs to the loop is
// touched by its thread alone; post() and the pool are the only ways in and out. Boost.Asio does
// the work and shows nowhere outside src/io but in Async<T>.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "io/async.h"

namespace caisson::io {

using Clock = std::chrono::steady_clock;

class Loop {
 public:
  // `threads`: of the pool, for blocking work (databases, files, starting sandboxes).
  explicit Loop(unsigned threads = 4);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Runs until stop(), and goes on when it is called again. Coroutines that still wait are
  // destroyed with the loop.
  void run();
  // From the loop's thread or a signal that the loop took (on_signal).
  void stop();

  // Starts a coroutine on the loop; it owns itself. An exception in it is a bug and aborts.
  void spawn(Async<void> task);
  // Runs `work` on the loop soon. From any thread.
  void post(std::function<void()> work);
  // Calls `handler` on the loop whenever the signal comes, until the loop ends.
  void on_signal(int number, std::function<void()> handler);

  // Waits so long.
  static Async<void> sleep(Clock::duration time);

  // Runs `work` on a thread of the pool and gives its result back on the loop. What `work` holds
  // are values, or things that nobody touches meanwhile. It cannot be cancelled: a coroutine that
  // is destroyed meanwhile leaves it running to its end.
  template <typename F>
  Async<decltype(std::declval<F>()())> in_pool(F work) {
    using T = decltype(work());
    auto result = std::make_shared<std::optional<T>>();
    std::function<void()> job = [result, held = std::make_shared<F>(std::move(work))] {
      result->emplace((*held)());
    };
    co_await run_in_pool(std::move(job));
    co_return std::move(**result);
  }

  struct State;  // of Boost.Asio; for src/io alone
  State& state() { return *state_; }

 private:
  Async<void> run_in_pool(std::function<void()> job);
  std::unique_ptr<State> state_;
};

// Something that coroutines of one loop wait for and others bring about. Its end wakes who still
// waits, as notify() does.
class Event {
 public:
  explicit Event(Loop& loop);
  ~Event();
  Event(Event&&) noexcept;
  Event& operator=(Event&&) noexcept;

  // Wakes all that wait now. Who comes later waits for the next one.
  void notify();
  // Until notify().
  Async<void> wait();
  // Until notify() (true) or the time (false).
  Async<bool> wait_until(Clock::time_point time);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace caisson::io
