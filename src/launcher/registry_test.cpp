#include "launcher/registry.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "wall/namespace/namespace_wall.h"

namespace caisson::launcher {
namespace {

class State : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "registry-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    run_ = Fd(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    auto made = Registration::create(run_.get(), "abcd1234");
    ASSERT_TRUE(made.has_value()) << made.error().message();
    registration_.emplace(std::move(*made));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path place() const { return folder_ / "sandboxes" / "abcd1234"; }
  Result<std::optional<SandboxState>> read() const {
    return read_state(registration_->directory_fd());
  }

  std::filesystem::path folder_;
  Fd run_;
  std::optional<Registration> registration_;
};

TEST_F(State, OfASandboxThatNobodyChangedIsNone) {
  const auto state = read();
  ASSERT_TRUE(state.has_value());
  EXPECT_FALSE(state->has_value());
}

TEST_F(State, IsReplacedAsAWhole) {
  ASSERT_TRUE(registration_->store_state({.deadline_ms = 12, .frozen = Frozen::kYes}));
  ASSERT_TRUE(registration_->store_state({.deadline_ms = ~0ull, .frozen = Frozen::kNo}));
  const auto state = read();
  ASSERT_TRUE(state.has_value() && state->has_value());
  EXPECT_EQ((*state)->deadline_ms, ~0ull);
  EXPECT_EQ((*state)->frozen, Frozen::kNo);
  EXPECT_FALSE(std::filesystem::exists(place() / "state.new"));
}

TEST_F(State, ThatIsNoneIsAnError) {
  for (const char* text : {"", "deadline_ms x\nfrozen 0\n", "frozen 1\n"}) {
    std::ofstream(place() / "state") << text;
    const auto state = read();
    ASSERT_FALSE(state.has_value()) << text;
    EXPECT_EQ(state.error().code(), Code::kDataLoss);
  }
}

TEST_F(State, GoesWithTheSandbox) {
  ASSERT_TRUE(registration_->store_state({}));
  // What a launcher that was killed meanwhile leaves.
  std::ofstream(place() / "state.new") << "half";
  EXPECT_TRUE(registration_->remove().has_value());
  EXPECT_FALSE(std::filesystem::exists(place()));
}

class Sweep : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "registry-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    run_ = Fd(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (int number = 0; number < kDead; ++number) {
      // Dropped at once: its lock is free.
      ASSERT_TRUE(Registration::create(run_.get(), "dead" + std::to_string(number)));
    }
    auto made = Registration::create(run_.get(), "alive");
    ASSERT_TRUE(made.has_value()) << made.error().message();
    alive_.emplace(std::move(*made));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  int sweep(Looks looks) { return launcher::sweep(run_.get(), *wall_, looks).value_or(-1); }

  static constexpr int kDead = 100;
  std::filesystem::path folder_;
  Fd run_;
  std::optional<Registration> alive_;
  std::unique_ptr<wall::Wall> wall_ = wall::make_namespace_wall();
};

TEST_F(Sweep, OfAllLeavesWhoLives) {
  EXPECT_EQ(sweep(Looks::kAll), kDead);
  EXPECT_EQ(sweep(Looks::kAll), 0);
  EXPECT_TRUE(std::filesystem::exists(folder_ / "sandboxes" / "alive"));
}

TEST_F(Sweep, OfSomeLooksAtFewAndBeforeLongAtAll) {
  const int first = sweep(Looks::kSome);
  EXPECT_GE(first, 7);
  EXPECT_LE(first, 8);
  int removed = first;
  for (int start = 0; start < 30 && removed < kDead; ++start) removed += sweep(Looks::kSome);
  EXPECT_EQ(removed, kDead);
}

}  // namespace
}  // namespace caisson::launcher
