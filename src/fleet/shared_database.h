// The database as coroutines use it: every piece of work runs on one thread of its own, in the
// order in which it was asked for.
//
// Held by shared_ptr by everything that uses it; the last one waits for the work under way and
// closes it. The loop outlives it.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "db/database.h"
#include "io/loop.h"

namespace caisson::fleet {

class SharedDatabase {
 public:
  SharedDatabase(io::Loop& loop, db::Database database)
      : loop_(loop), database_(std::move(database)), thread_([this] { work(); }) {}
  ~SharedDatabase() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  SharedDatabase(const SharedDatabase&) = delete;
  SharedDatabase& operator=(const SharedDatabase&) = delete;

  // What `work` returns, which gets the database and holds values alone: it runs to its end even
  // where nobody waits for it any more.
  template <typename F>
  io::Async<decltype(std::declval<F>()(std::declval<db::Database&>()))> with(F work) {
    using T = decltype(work(std::declval<db::Database&>()));
    struct Answer {
      explicit Answer(io::Loop& loop) : done(loop) {}
      std::optional<T> value;
      bool ready = false;  // the loop's; `value` is the thread's until then
      io::Event done;
    };
    auto answer = std::make_shared<Answer>(loop_);
    auto job = [this, answer, held = std::make_shared<F>(std::move(work))]() mutable {
      answer->value.emplace((*held)(database_));
      // Moved: what it waits by is the loop's to destroy.
      loop_.post([answer = std::move(answer)] {
        answer->ready = true;
        answer->done.notify();
      });
    };
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    wake_.notify_one();
    while (!answer->ready) co_await answer->done.wait();
    co_return std::move(*answer->value);
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      wake_.wait(lock, [this] { return closed_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  io::Loop& loop_;
  db::Database database_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace caisson::fleet
