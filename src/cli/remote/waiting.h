// Calls of the loop for commands, which block: wait() runs a coroutine to its end, or until the
// user has asked to stop (Ctrl-C).
#pragma once

#include <chrono>
#include <optional>
#include <utility>

#include "cli/terminal.h"
#include "io/loop.h"
#include "io/race.h"

namespace caisson::cli {

// While a command runs, the user's first wish ends it and the second one its sandbox.
inline constexpr int kGivesUpAfter = 3;

// So many more times is the user to ask: what heeds the first ones itself waits for later ones.
inline io::Async<void> wait_for_stop(int times) {
  const int before = Session::interrupts();
  while (Session::interrupts() - before < times)
    co_await io::Loop::sleep(std::chrono::milliseconds(50));
}

// Error: cancelled.
template <typename T>
Result<T> wait(io::Loop& loop, io::Async<Result<T>> task, int stops_after = 1) {
  std::optional<Result<T>> result;
  auto work = [](io::Async<Result<T>> inner, std::optional<Result<T>>& into) -> io::Async<void> {
    Result<T> value = co_await std::move(inner);
    into.emplace(std::move(value));
  };
  auto whole = [](io::Loop& on, io::Async<void> one, io::Async<void> other) -> io::Async<void> {
    co_await io::race(std::move(one), std::move(other));
    on.stop();
  };
  loop.spawn(whole(loop, work(std::move(task), result), wait_for_stop(stops_after)));
  loop.run();
  if (!result.has_value()) return fail(Error(Code::kCancelled, "cancelled"));
  return std::move(*result);
}

}  // namespace caisson::cli
