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
    with_pool(loop, {{kRecipe, size}}, {.quiet = quiet}, std::move(body));
  }
  // With places for others.
  template <typename Body>
  void with_places(std::size_t places, io::Clock::duration in_use, Body body) {
    io::Loop loop(2);
    with_pool(loop, {}, {.quiet = milliseconds(0), .places = places, .in_use = in_use},
              std::move(body));
  }
  template <typename Body>
  void with_pool(io::Loop& loop, Pool::Sizes sizes, Pool::Options options, Body body) {
    Pool pool(loop, std::move(sizes), host_, options);
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
  static io::Async<void> take(Pool& pool, std::size_t count, Recipe recipe = kRecipe) {
    for (std::size_t i = 0; i < count; ++i) {
      auto taken = co_await pool.take(recipe);
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

  static inline const Recipe kRecipe{.image = "user"}, kOther{.image = "other"},
      kThird{.image = "third"};
  FakeHost host_;
};

TEST_F(PoolTest, WhatWasMadeOfAnImageThatTheNameMeansNoMoreIsNotTaken) {
  host_.set_image("user", "sha256:1");
  with_pool(2, milliseconds(0), [this](Pool& pool) -> io::Async<void> {
    bool full = co_await until_ready(pool, 2);
    EXPECT_TRUE(full);
    auto taken = co_await pool.take(kRecipe, "sha256:1");
    EXPECT_EQ(taken->made.image, "sha256:1");
    EXPECT_EQ(pool.counts().taken_total, 1u);
    full = co_await until_ready(pool, 2);
    EXPECT_TRUE(full);
    // Imported anew under the same name.
    host_.set_image("user", "sha256:2");
    taken = co_await pool.take(kRecipe, "sha256:2");
    EXPECT_EQ(taken->made.image, "sha256:2");
    EXPECT_EQ(pool.counts().taken_total, 1u);
    full = co_await until_ready(pool, 2);
    EXPECT_TRUE(full);
    taken = co_await pool.take(kRecipe, "sha256:2");
    EXPECT_EQ(taken->made.image, "sha256:2");
    EXPECT_EQ(pool.counts().taken_total, 2u);
  });
}

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

TEST_F(PoolTest, WhatIsTakenAgainIsMadeAhead) {
  with_places(2, hours(1), [this](Pool& pool) -> io::Async<void> {
    co_await take(pool, 1, kOther);
    EXPECT_EQ(pool.counts().wanted, 0u);  // once is no use yet
    co_await take(pool, 1, kOther);
    EXPECT_EQ(pool.counts().wanted, 1u);
    bool there = co_await until_ready(pool, 1);
    EXPECT_TRUE(there);
    EXPECT_EQ(host_.made(), 3u);
    co_await take(pool, 1, kOther);
    EXPECT_EQ(pool.counts().taken_total, 1u);
    there = co_await until_ready(pool, 1);
    EXPECT_TRUE(there);
    EXPECT_EQ(host_.made(), 4u);
  });
}

TEST_F(PoolTest, WhatWasTakenLongestAgoGivesItsPlace) {
  with_places(1, hours(1), [](Pool& pool) -> io::Async<void> {
    co_await take(pool, 2, kOther);
    bool there = co_await until_ready(pool, 1);
    EXPECT_TRUE(there);
    co_await take(pool, 2, kThird);
    there = co_await until_ready(pool, 1);
    EXPECT_TRUE(there);
    EXPECT_EQ(pool.counts().wanted, 1u);
    const auto taken = pool.counts().taken_total;
    co_await take(pool, 1, kThird);
    EXPECT_EQ(pool.counts().taken_total, taken + 1);
    co_await take(pool, 1, kOther);  // its place was given away
    EXPECT_EQ(pool.counts().taken_total, taken + 1);
  });
}

TEST_F(PoolTest, WhatNobodyTakesAnyMoreLosesItsPlace) {
  with_places(2, std::chrono::seconds(2), [](Pool& pool) -> io::Async<void> {
    co_await take(pool, 2, kOther);
    const bool there = co_await until_ready(pool, 1);
    EXPECT_TRUE(there);
    // It is found out when something is taken; each of these is taken once alone.
    for (int i = 0; i < 1000 && pool.counts().wanted > 0; ++i) {
      co_await io::Loop::sleep(milliseconds(20));
      co_await take(pool, 1, Recipe{.image = "image" + std::to_string(i)});
    }
    EXPECT_EQ(pool.counts().ready, 0u);
    EXPECT_EQ(pool.counts().wanted, 0u);
  });
}

TEST_F(PoolTest, WithoutPlacesNothingElseIsMadeAhead) {
  with_places(0, hours(1), [](Pool& pool) -> io::Async<void> {
    co_await take(pool, 3, kOther);
    EXPECT_EQ(pool.counts().wanted, 0u);
    EXPECT_EQ(pool.counts().missed_total, 3u);
  });
  EXPECT_EQ(host_.made(), 3u);
}

TEST_F(PoolTest, WhatCannotBeMadeAnyMoreHoldsUpNobody) {
  io::Loop loop(2);
  with_pool(loop, {{kRecipe, 1}}, {.quiet = milliseconds(0), .places = 1},
            [this](Pool& pool) -> io::Async<void> {
              co_await take(pool, 2, kOther);
              bool there = co_await until_ready(pool, 2);
              EXPECT_TRUE(there);
              host_.refuse_image("other");
              auto taken = co_await pool.take(kOther);  // the one that is ready
              EXPECT_TRUE(taken.has_value());
              for (int i = 0; i < 5000 && pool.counts().wanted != 1; ++i)
                co_await io::Loop::sleep(milliseconds(2));
              EXPECT_EQ(pool.counts().wanted, 1u);
              EXPECT_EQ(pool.counts().failed_total, 1u);
              // Without the pause that follows a failure of the operator's own.
              co_await take(pool, 1);
              there = co_await until_ready(pool, 1);
              EXPECT_TRUE(there);
              taken->client->shutdown();
              co_await taken->client->wait_gone();
            });
}

}  // namespace
}  // namespace caisson::fleet
