// The database as coroutines use it: every piece of work runs on the loop's pool, one at a time.
//
// Held by shared_ptr by everything that uses it; the last one closes it.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "db/database.h"
#include "io/loop.h"

namespace caisson::fleet {

class SharedDatabase {
 public:
  SharedDatabase(io::Loop& loop, db::Database database)
      : loop_(loop), guarded_(std::make_shared<Guarded>(std::move(database))) {}

  // What `work` returns, which gets the database and holds values alone: it runs to its end even
  // where nobody waits for it any more.
  template <typename F>
  io::Async<decltype(std::declval<F>()(std::declval<db::Database&>()))> with(F work) {
    auto job = [guarded = guarded_, held = std::move(work)]() mutable {
      const std::lock_guard lock(guarded->mutex);
      return held(guarded->database);
    };
    co_return co_await loop_.in_pool(std::move(job));
  }

 private:
  struct Guarded {
    explicit Guarded(db::Database opened) : database(std::move(opened)) {}
    std::mutex mutex;
    db::Database database;
  };
  io::Loop& loop_;
  std::shared_ptr<Guarded> guarded_;
};

}  // namespace caisson::fleet
