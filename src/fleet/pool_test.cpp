#include "fleet/pool.h"

#include <gtest/gtest.h>

#include "fleet/fake_host_for_test.h"

namespace caisson::fleet {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

class PoolTest : public testing::Test {
 public:
  // Runs a body on a loop with a started pool of `size`, and ends the pool.
  template <typename Body>
  void with_pool(std::size_t size, io::Clock::duration quiet, Body body) {
    io::Loop loop(2);
    Pool pool(loop, {{kRecipe, size}}, host_, quiet);
    auto task = [](io::Loop& on, Pool& of, Body& run) -> io::Async<void> {
      of.start();
      co_await run(of);
      co_await of.close(std::chrono::seconds(10));
      on.stop();
    };
    loop.spawn(task(loop, pool, body));
    loop.run();
  }

  // Takes so many and ends them.
  static io::Async<void> take(Pool& pool, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      auto taken = co_await pool.take(kRecipe);
      EXPECT_TRUE(taken.has_value());
      if (!taken.has_value()) co_return;
      taken->client->shutdown();
      co_await taken->client->wait_gone();
    }
  }
  static io::Async<bool> until_ready(Pool& pool, std::size_t count) {
    for (int i = 0; i < 5000 && pool.counts().ready != count; ++i)
      co_await io::Loop::sleep(milliseconds(2));
    co_return pool.counts().ready == count;
  }

  static inline const Recipe kRecipe{.image = "user"};
  FakeHost host_;
};

TEST_F(PoolTest, IsFilledAgainWhenNobodyTakes) {
  with_pool(8, milliseconds(0), [](Pool& pool) -> io::Async<void> {
    bool full = co_await until_ready(pool, 8);
    EXPECT_TRUE(full);
    co_await take(pool, 5);
    full = co_await until_ready(pool, 8);
    EXPECT_TRUE(full);
  });
  EXPECT_EQ(host_.made(), 13u);
}

TEST_F(PoolTest, KeepsAQuarterWhileSandboxesAreTaken) {
  with_pool(8, hours(1), [this](Pool& pool) -> io::Async<void> {
    const bool full = co_await until_ready(pool, 8);
    EXPECT_TRUE(full);
    co_await take(pool, 6);
    EXPECT_EQ(host_.made(), 8u);
    EXPECT_EQ(pool.counts().ready, 2u);
    co_await take(pool, 1);
    const bool reserved = co_await until_ready(pool, 2);
    EXPECT_TRUE(reserved);
  });
  EXPECT_EQ(host_.made(), 9u);
}

TEST_F(PoolTest, MakesOneForWhoFindsNone) {
  with_pool(0, hours(1), [](Pool& pool) -> io::Async<void> {
    co_await take(pool, 2);
    EXPECT_EQ(pool.counts().missed_total, 2u);
  });
  EXPECT_EQ(host_.made(), 2u);
}

}  // namespace
}  // namespace caisson::fleet
