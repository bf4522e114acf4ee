// What the launcher answers its supervisor, which may be broken: places for commands, and bounds.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "base/sys.h"
#include "wall/namespace/box.h"
#include "wall/namespace/namespace_wall.h"

namespace caisson::wall {
namespace {

// As namespace_wall.cpp has it: more than a supervisor ever needs at once.
constexpr std::uint32_t kMost = 512;

std::string random_id() {
  std::random_device random;
  std::string id = "broker";
  for (int i = 0; i < 8; ++i) id += static_cast<char>('a' + random() % 26);
  return id;
}

// The launcher's part of a sandbox that is never built, with real control groups where this user
// may make some.
class Broker : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "broker-XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    std::filesystem::create_directory(folder_ / "box");
    run_ = Fd(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    box_ = Fd(::open((folder_ / "box").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    plan_.id = random_id();
    plan_.image = PlanImage::kDirectory;
    wall_ = make_namespace_wall();
    auto prepared =
        wall_->prepare(plan_, {.run_directory_fd = run_.get(), .sandbox_directory_fd = box_.get()});
    ASSERT_TRUE(prepared.has_value()) << prepared.error().message();
    prepared_ = std::move(*prepared);
    const Status admitted = prepared_->admit();
    ASSERT_TRUE(admitted.has_value()) << admitted.error().message();
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    here_ = Fd(ends[0]);
    there_ = Fd(ends[1]);
    prepared_->complete(here_.get());
    const auto completion = receive_completion(there_.get());
    ASSERT_TRUE(completion.has_value()) << completion.error().message();
  }
  void TearDown() override {
    if (prepared_ != nullptr) {
      const Status cleaned = prepared_->clean_up(5000);
      EXPECT_TRUE(cleaned.has_value()) << cleaned.error().message();
    }
    prepared_.reset();
    std::filesystem::remove_all(folder_);
  }

  // One request, and what serve() made of it.
  Status ask(char what, std::uint32_t number) {
    const BrokerRequest request{what, number};
    return ask({reinterpret_cast<const char*>(&request), sizeof request});
  }
  Status ask(std::string_view bytes) { return prepared_->serve(here_.get(), bytes); }
  // The same for a place, which must be given: the answer is taken off the socket.
  void expect_place(std::uint32_t number) {
    const Status served = ask('S', number);
    ASSERT_TRUE(served.has_value()) << number << ": " << served.error().message();
    const auto answer = sys::recv_message(there_.get(), 4096);
    ASSERT_TRUE(answer.has_value());
    ASSERT_EQ(answer->bytes.size(), static_cast<std::size_t>(SlotFiles::kCount)) << answer->bytes;
  }
  static std::string message_of(const Status& status) {
    return status ? "accepted" : status.error().message();
  }

  // The commands' groups of this sandbox, in every hierarchy.
  std::vector<std::string> places() const {
    std::vector<std::string> found;
    const auto options = std::filesystem::directory_options::skip_permission_denied;
    std::error_code ignored;
    std::filesystem::recursive_directory_iterator all("/sys/fs/cgroup", options, ignored), end;
    for (; all != end; all.increment(ignored)) {
      const std::string path = all->path();
      if (path.find("caisson-" + plan_.id + "/x") != std::string::npos &&
          all->is_directory(ignored))
        found.push_back(path);
    }
    std::ranges::sort(found);
    return found;
  }

  std::filesystem::path folder_;
  Fd run_, box_, here_, there_;
  Plan plan_;
  std::unique_ptr<Wall> wall_;
  std::unique_ptr<Prepared> prepared_;
};

TEST_F(Broker, ASupervisorThatAsksForTooManyPlacesIsRefused) {
  std::uint32_t number = kFirstSlot;
  for (std::uint32_t i = 0; i < kMost; ++i) ASSERT_NO_FATAL_FAILURE(expect_place(++number));
  // One that is given back makes room for another.
  EXPECT_EQ(message_of(ask('D', number)), "accepted");
  ASSERT_NO_FATAL_FAILURE(expect_place(++number));
  EXPECT_EQ(message_of(ask('S', ++number)), "too many places");
}

TEST_F(Broker, TheNextPlaceIsMadeAheadOnceThereWasASecondCommand) {
  EXPECT_EQ(prepared_->ahead_at_us(), 0u);
  ASSERT_NO_FATAL_FAILURE(expect_place(kFirstSlot + 1));
  EXPECT_GT(prepared_->ahead_at_us(), sys::monotonic_us());
  const auto before = places();
  prepared_->make_ahead();
  EXPECT_EQ(prepared_->ahead_at_us(), 0u);
  const auto after = places();
  if (before.empty()) GTEST_SKIP() << "this user can make no control groups here";
  EXPECT_GT(after.size(), before.size());
  // What was made is what the next command gets.
  ASSERT_NO_FATAL_FAILURE(expect_place(kFirstSlot + 2));
  EXPECT_EQ(places(), after);
  // And another one's number has a place of its own, the one made ahead going with the next
  // request.
  const auto count = [&](std::uint32_t slot) {
    const std::string end = "/x" + std::to_string(slot);
    return std::ranges::count_if(places(), [&](const auto& path) { return path.ends_with(end); });
  };
  prepared_->make_ahead();
  EXPECT_NE(count(kFirstSlot + 3), 0);
  ASSERT_NO_FATAL_FAILURE(expect_place(kFirstSlot + 9));
  EXPECT_EQ(message_of(ask('D', kFirstSlot + 1)), "accepted");
  EXPECT_EQ(message_of(ask('U', 0)), "accepted");
  EXPECT_EQ(count(kFirstSlot + 1), 0);
  EXPECT_EQ(count(kFirstSlot + 3), 0);
  EXPECT_NE(count(kFirstSlot + 9), 0);
}

TEST_F(Broker, WhatASupervisorNeverAsksIsRefused) {
  EXPECT_NE(message_of(ask('S', kFirstSlot)).find("out of order"), std::string::npos);
  ASSERT_NO_FATAL_FAILURE(expect_place(7));
  EXPECT_NE(message_of(ask('S', 7)).find("out of order"), std::string::npos);
  EXPECT_EQ(message_of(ask('X', 8)), "an unknown request");
  EXPECT_EQ(message_of(ask("S")), "a request of wrong size");
}

TEST_F(Broker, FreezingIsAnsweredAlsoWhereItCannotBe) {
  const auto answered = [&](char what) {
    EXPECT_TRUE(ask(what, 0).has_value());
    return receive_status(there_.get());
  };
  const Status frozen = answered('Z');
  if (!frozen) EXPECT_EQ(frozen.error().code(), Code::kFailedPrecondition);
  EXPECT_TRUE(answered('T').has_value());
}

}  // namespace
}  // namespace caisson::wall
