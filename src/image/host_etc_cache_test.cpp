#include "image/host_etc_cache.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "image/archive_for_test.h"
#include "image/files.h"

namespace caisson::image {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using testing::TemporaryDirectory;

class HostEtcCache : public ::testing::Test {
 protected:
  HostEtcCache() : run_(open_directory_at(AT_FDCWD, directory_.path()).value()) {
    std::filesystem::create_directory(etc_);
  }
  Result<Fd> open_for(std::uint32_t uid) {
    return host_etc_directory(run_.get(), uid, uid, etc_.string());
  }
  void change_etc() { std::ofstream(etc_ / ("file" + std::to_string(++changes_))) << "x"; }
  // Of the directories that are kept, by user.
  std::vector<std::string> generations(std::uint32_t uid) {
    const std::string key = std::to_string(uid) + "-" + std::to_string(uid) + "-";
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(directory_ / "etc")) {
      const std::string name = entry.path().filename();
      if (name.starts_with(key)) found.push_back(name);
    }
    return found;
  }
  static bool complete(const Fd& kept) { return ::faccessat(kept.get(), "passwd", R_OK, 0) == 0; }

  TemporaryDirectory directory_;
  Fd run_;
  std::filesystem::path etc_ = directory_ / "host-etc";
  int changes_ = 0;
};

TEST_F(HostEtcCache, ServesTheSameDirectoryUntilEtcChanges) {
  struct stat first{}, again{}, changed{};
  const Fd one = open_for(1000).value();
  ASSERT_TRUE(complete(one));
  ASSERT_EQ(::fstat(one.get(), &first), 0);
  ASSERT_EQ(::fstat(open_for(1000).value().get(), &again), 0);
  EXPECT_EQ(first.st_ino, again.st_ino);
  change_etc();
  ASSERT_EQ(::fstat(open_for(1000).value().get(), &changed), 0);
  EXPECT_NE(first.st_ino, changed.st_ino);
}

TEST_F(HostEtcCache, RemovesWhatNobodyShowsWhenEtcHasChanged) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(open_for(1000).has_value());
    ASSERT_EQ(generations(1000).size(), 1u);
    change_etc();
  }
}

TEST_F(HostEtcCache, RemovesThoseOfOtherUsersToo) {
  ASSERT_TRUE(open_for(7).has_value());
  change_etc();
  ASSERT_TRUE(open_for(1000).has_value());
  EXPECT_THAT(generations(7), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(directory_ / "etc/sources-7-7"));
  ASSERT_TRUE(open_for(7).has_value());
  EXPECT_EQ(generations(7).size(), 1u);
  EXPECT_EQ(generations(1000).size(), 1u);  // of the /etc that is there: stays
}

TEST_F(HostEtcCache, KeepsWhatASandboxStillShows) {
  auto shown = open_for(1000);
  ASSERT_TRUE(shown.has_value());
  const std::string name = generations(1000).at(0);
  change_etc();
  ASSERT_TRUE(open_for(1000).has_value());
  EXPECT_TRUE(complete(*shown));
  EXPECT_THAT(generations(1000), Contains(name));
  shown->reset();
  change_etc();
  ASSERT_TRUE(open_for(1000).has_value());
  EXPECT_THAT(generations(1000), Not(Contains(name)));
  EXPECT_EQ(generations(1000).size(), 1u);
}

TEST_F(HostEtcCache, WhatAKilledRemovalLeftIsSwept) {
  ASSERT_TRUE(open_for(1000).has_value());
  const std::string name = generations(1000).at(0);
  std::filesystem::rename(directory_ / ("etc/" + name), directory_ / ("etc/new-" + name));
  ASSERT_TRUE(has_unfinished_host_etc(run_.get()));
  sweep_host_etc(run_.get());
  EXPECT_FALSE(has_unfinished_host_etc(run_.get()));
  EXPECT_FALSE(std::filesystem::exists(directory_ / ("etc/new-" + name)));
}

TEST_F(HostEtcCache, StartsBesideEachOtherWhileEtcChangesAllHaveACompleteOne) {
  // Each worker is a process: the unfinished directory is named after it.
  constexpr int kWorkers = 4;
  std::vector<pid_t> workers;
  for (int i = 0; i < kWorkers; ++i) {
    const pid_t pid = ::fork();
    ASSERT_GE(pid, 0);
    if (pid == 0) {
      for (int round = 0; round < 50; ++round) {
        const auto kept = open_for(1000);
        // Only the change itself may be in the way.
        if (!kept && kept.error().code() == Code::kAborted) continue;
        if (!kept || !complete(*kept)) ::_exit(1);
      }
      ::_exit(0);
    }
    workers.push_back(pid);
  }
  for (int i = 0; i < 50; ++i) change_etc();
  for (const pid_t pid : workers) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  change_etc();
  ASSERT_TRUE(open_for(1000).has_value());
  EXPECT_EQ(generations(1000).size(), 1u);
}

TEST_F(HostEtcCache, SaysWhichEtcIsNotThere) {
  const auto none = host_etc_directory(run_.get(), 1, 1, (etc_ / "none").string());
  ASSERT_FALSE(none.has_value());
  EXPECT_THAT(std::string(none.error().message()), StartsWith("open " + (etc_ / "none").string()));
}

}  // namespace
}  // namespace caisson::image
