#include "image/files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "image/archive_for_test.h"

namespace caisson::image {
namespace {

using testing::read_text;
using testing::TemporaryDirectory;

class Files : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
  Fd fd_ = open_or_make_directory(directory_.path()).value();
};

TEST_F(Files, ReplacesAFileAndLeavesNothingBeside) {
  ASSERT_TRUE(replace_file_at(fd_.get(), "f", "one").has_value());
  ASSERT_TRUE(replace_file_at(fd_.get(), "f", "two").has_value());
  EXPECT_EQ(read_small_file_at(fd_.get(), "f").value(), "two");
  EXPECT_EQ(list_directory(fd_.get()).value(), std::vector<std::string>{"f"});
}

TEST_F(Files, AFailedReplacementLeavesTheOldOne) {
  ASSERT_TRUE(open_or_make_directory_at(fd_.get(), "f").has_value());
  ASSERT_TRUE(replace_file_at(fd_.get(), "f/inner", "x").has_value());
  EXPECT_FALSE(replace_file_at(fd_.get(), "f", "new").has_value());
  EXPECT_EQ(list_directory(fd_.get()).value(), std::vector<std::string>{"f"});
}

TEST_F(Files, SmallFilesAreSmallAndNoLinks) {
  ASSERT_TRUE(replace_file_at(fd_.get(), "big", std::string((1 << 20) + 1, 'x')).has_value());
  EXPECT_EQ(read_small_file_at(fd_.get(), "big").error().code(), Code::kInvalidArgument);
  ASSERT_EQ(symlink("big", (directory_ / "link").c_str()), 0);
  EXPECT_EQ(read_small_file_at(fd_.get(), "link").error().error_number(), ELOOP);
  EXPECT_EQ(read_small_file(directory_ / "absent").error().code(), Code::kNotFound);
}

TEST_F(Files, MakesDirectoriesOnTheWay) {
  ASSERT_TRUE(open_or_make_directory(directory_ / "a/b/c").has_value());
  struct stat status = {};
  ASSERT_EQ(stat((directory_ / "a/b/c").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  ASSERT_TRUE(replace_file_at(fd_.get(), "file", "").has_value());
  EXPECT_FALSE(open_or_make_directory(directory_ / "file/b").has_value());
}

TEST_F(Files, LocksExcludeAndEndWithTheirDescriptor) {
  std::optional<Fd> first =
      lock_file_at(fd_.get(), "lock", LockKind::kExclusive, LockWait::kTry).value();
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(lock_file_at(fd_.get(), "lock", LockKind::kShared, LockWait::kTry)->has_value());
  first.reset();
  std::optional<Fd> shared =
      lock_file_at(fd_.get(), "lock", LockKind::kShared, LockWait::kTry).value();
  EXPECT_TRUE(lock_file_at(fd_.get(), "lock", LockKind::kShared, LockWait::kTry)->has_value());
  EXPECT_FALSE(lock_file_at(fd_.get(), "lock", LockKind::kExclusive, LockWait::kTry)->has_value());
}

TEST_F(Files, ALockThatWasUnlinkedIsNotHeldByTheNextWhoComes) {
  std::optional<Fd> first =
      lock_file_at(fd_.get(), "lock", LockKind::kExclusive, LockWait::kTry).value();
  ASSERT_EQ(unlinkat(fd_.get(), "lock", 0), 0);
  EXPECT_TRUE(lock_file_at(fd_.get(), "lock", LockKind::kExclusive, LockWait::kTry)->has_value());
}

TEST_F(Files, WritingBeginsWithWholePagesOfAMegabyteAndMore) {
  const Fd file(openat(fd_.get(), "f", O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(ftruncate(file.get(), 3 << 20), 0);
  EXPECT_EQ(begin_writing(file.get(), 0, (1 << 20) - 1), 0u);
  EXPECT_EQ(begin_writing(file.get(), 0, (1 << 20) + 5000), (1u << 20) + 4096);
  EXPECT_EQ(begin_writing(file.get(), 1 << 20, (2 << 20) - 1), 1u << 20);
  // A pipe has no disk; that is no error.
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const Fd reader(ends[0]), writer(ends[1]);
  EXPECT_EQ(begin_writing(writer.get(), 0, 1 << 20), 1u << 20);
}

TEST_F(Files, RemovesATreeOfAnyDepthAndClosedDirectories) {
  Fd at = open_or_make_directory_at(fd_.get(), "tree").value();
  for (int depth = 0; depth < 3000; ++depth) {
    ASSERT_TRUE(replace_file_at(at.get(), "file", "x").has_value());
    Fd next = open_or_make_directory_at(at.get(), depth % 2 == 0 ? "down" : ".removed.0").value();
    ASSERT_EQ(fchmod(at.get(), 0500), 0);
    at = std::move(next);
  }
  ASSERT_EQ(fchmod(at.get(), 0), 0);
  ASSERT_EQ(symlink("/", (directory_ / "outside").c_str()), 0);
  EXPECT_TRUE(remove_tree_at(fd_.get(), "tree").has_value());
  EXPECT_TRUE(remove_tree_at(fd_.get(), "outside").has_value());
  EXPECT_TRUE(remove_tree_at(fd_.get(), "absent").has_value());
  EXPECT_TRUE(list_directory(fd_.get())->empty());
  EXPECT_EQ(access("/usr", F_OK), 0);
}

TEST_F(Files, TwoMayRemoveATreeAtOnce) {
  for (int round = 0; round < 20; ++round) {
    const Fd tree = open_or_make_directory_at(fd_.get(), "tree").value();
    for (int i = 0; i < 30; ++i) {
      const Fd folder = open_or_make_directory_at(tree.get(), std::to_string(i)).value();
      for (int j = 0; j < 10; ++j) {
        const Fd below = open_or_make_directory_at(folder.get(), std::to_string(j)).value();
        ASSERT_EQ(mkdirat(below.get(), "last", 0700), 0);
      }
    }
    Status other;
    std::thread second([&] { other = remove_tree_at(fd_.get(), "tree"); });
    const Status first = remove_tree_at(fd_.get(), "tree");
    second.join();
    EXPECT_TRUE(first.has_value()) << first.error().message();
    EXPECT_TRUE(other.has_value()) << other.error().message();
    EXPECT_TRUE(list_directory(fd_.get())->empty());
  }
}

}  // namespace
}  // namespace caisson::image
