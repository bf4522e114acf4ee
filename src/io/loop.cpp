#include "io/loop.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <cstdio>
#include <exception>

#include "io/loop_state.h"

namespace caisson::io {
namespace {

// Where a coroutine ends that spawn() started. Nothing of ours throws.
void end_of_task(const std::exception_ptr& thrown) {
  if (!thrown) return;
  try {
    std::rethrow_exception(thrown);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "caisson: an exception ended a coroutine: %s\n", exception.what());
  } catch (...) {
  }
  VERIFY(thrown == nullptr);
}

void wait_for_signal(asio::signal_set& signals, std::function<void()> handler) {
  signals.async_wait(
      [&signals, handler = std::move(handler)](boost::system::error_code error, int) mutable {
        if (error) return;
        handler();
        wait_for_signal(signals, std::move(handler));
      });
}

}  // namespace

Loop::Loop(unsigned threads) : state_(std::make_unique<State>(threads)) {}
Loop::~Loop() = default;

void Loop::run() {
  state_->context.run();
  state_->context.restart();
}

void Loop::stop() {
  state_->context.stop();
}

void Loop::spawn(Async<void> task) {
  // Never at once, on the stack of whoever spawns it.
  asio::post(state_->context, [this, task = std::move(task)]() mutable {
    asio::co_spawn(state_->context, std::move(task), end_of_task);
  });
}

void Loop::post(std::function<void()> work) {
  asio::post(state_->context, std::move(work));
}

void Loop::on_signal(int number, std::function<void()> handler) {
  asio::signal_set& signals = state_->signals.emplace_back(state_->context);
  boost::system::error_code error;
  signals.add(number, error);
  VERIFY(!error);
  wait_for_signal(signals, std::move(handler));
}

Async<void> Loop::sleep(Clock::duration time) {
  const auto executor = co_await asio::this_coro::executor;
  Timer timer(*executor.target<asio::io_context::executor_type>(), time);
  co_await timer.async_wait(kAwait);
}

Async<void> Loop::run_in_pool(std::function<void()> job) {
  // The handler is the waiting coroutine: it goes to the pool with the job and back by post().
  auto start = [](auto handler, State* state, std::function<void()> held) {
    asio::post(state->pool,
               [state, handler = std::move(handler), held = std::move(held)]() mutable {
                 held();
                 held = nullptr;
                 asio::post(state->context, std::move(handler));
               });
  };
  co_await asio::async_initiate<const asio::use_awaitable_t<>, void()>(
      std::move(start), asio::use_awaitable, state_.get(), std::move(job));
}

// ---- Event
// ----------------------------------------------------------------------------------------

namespace {

// A member of a ring, so that whoever goes first, waiter or event, leaves nothing dangling.
struct Link {
  Link *before = this, *behind = this;
  Link() = default;
  ~Link() { leave(); }
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  void leave() {
    before->behind = behind;
    behind->before = before;
    before = behind = this;
  }
  void join(Link& ring) {
    before = ring.before;
    behind = &ring;
    before->behind = this;
    ring.before = this;
  }
};

struct Waiter : Link {
  explicit Waiter(asio::io_context& context) : timer(context) {}
  Timer timer;
  bool notified = false;
};

}  // namespace

struct Event::State {
  explicit State(Loop::State& of) : loop(of) {}
  ~State() { wake(); }
  void wake() {
    while (waiters.behind != &waiters) {
      auto& waiter = static_cast<Waiter&>(*waiters.behind);
      waiter.leave();
      waiter.notified = true;
      waiter.timer.cancel();
    }
  }
  static Async<bool> wait(State* state, Clock::time_point time) {
    Waiter waiter(state->loop.context);
    waiter.join(state->waiters);
    waiter.timer.expires_at(time);
    co_await waiter.timer.async_wait(kAwait);
    co_return waiter.notified;
  }

  Loop::State& loop;
  Link waiters;
};

Event::Event(Loop& loop) : state_(std::make_unique<State>(loop.state())) {}
Event::~Event() = default;
Event::Event(Event&&) noexcept = default;
Event& Event::operator=(Event&&) noexcept = default;

void Event::notify() {
  state_->wake();
}

Async<void> Event::wait() {
  co_await State::wait(state_.get(), Clock::time_point::max());
}

Async<bool> Event::wait_until(Clock::time_point time) {
  return State::wait(state_.get(), time);
}

}  // namespace caisson::io
