#include "io/turns.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "io/loop_for_test.h"
#include "io/race.h"

namespace caisson::io {
namespace {

using testing::ElementsAre;

class TurnsTest : public testing::Test {
 protected:
  // Takes a turn, says so, and works until it is told to end.
  static Async<void> work(TurnsTest* self, std::string name, std::string key, Event* end) {
    const Turns::Turn turn = co_await Turns::take(self->turns_, std::move(key));
    self->begun_.push_back(std::move(name));
    if (end != nullptr) co_await end->wait();
  }
  // What is ready by now has run.
  static Async<void> settle() {
    for (int turn = 0; turn < 10; ++turn) co_await Loop::sleep(std::chrono::seconds(0));
  }

  Loop loop_{1};
  std::shared_ptr<Turns> turns_ = std::make_shared<Turns>(loop_, 2);
  std::vector<std::string> begun_;
};

TEST_F(TurnsTest, SoManyWorkAtOnceAndTheOthersInTheirOrder) {
  Event end(loop_);
  auto body = [&]() -> Async<void> {
    for (const char* name : {"a", "b", "c", "d", "e"}) loop_.spawn(work(this, name, name, &end));
    co_await settle();
    EXPECT_THAT(begun_, ElementsAre("a", "b"));
    end.notify();
    co_await settle();
    EXPECT_THAT(begun_, ElementsAre("a", "b", "c", "d"));
    end.notify();
    co_await settle();
    EXPECT_THAT(begun_, ElementsAre("a", "b", "c", "d", "e"));
    end.notify();
    co_await settle();
  };
  run_on(loop_, body);
}

TEST_F(TurnsTest, OfOneKeyThereIsOneAtATime) {
  Event first(loop_), second(loop_);
  auto body = [&]() -> Async<void> {
    loop_.spawn(work(this, "a1", "a", &first));
    loop_.spawn(work(this, "a2", "a", &second));
    loop_.spawn(work(this, "b1", "b", &second));
    co_await settle();
    EXPECT_THAT(begun_, ElementsAre("a1", "b1"));
    first.notify();
    co_await settle();
    EXPECT_THAT(begun_, ElementsAre("a1", "b1", "a2"));
    second.notify();
    co_await settle();
  };
  run_on(loop_, body);
}

TEST_F(TurnsTest, WhoIsCancelledHoldsNoPlace) {
  Event first(loop_), cancel(loop_);
  auto wait = [](Event* event) -> Async<void> { co_await event->wait(); };
  auto body = [&]() -> Async<void> {
    loop_.spawn(work(this, "a1", "a", &first));
    loop_.spawn(race(work(this, "a2", "a", nullptr), wait(&cancel)));
    loop_.spawn(work(this, "a3", "a", nullptr));
    co_await settle();
    cancel.notify();
    co_await settle();
    first.notify();
    co_await settle();
    EXPECT_THAT(begun_, ElementsAre("a1", "a3"));
  };
  run_on(loop_, body);
}

TEST_F(TurnsTest, WithoutTurnsThereIsNothingToWaitFor) {
  auto body = [&]() -> Async<void> {
    const Turns::Turn turn = co_await Turns::take(nullptr, "a");
    EXPECT_EQ(turn, nullptr);
  };
  run_on(loop_, body);
}

}  // namespace
}  // namespace caisson::io
