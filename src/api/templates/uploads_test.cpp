#include "api/templates/uploads.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace caisson::api {
namespace {

class UploadsTest : public testing::Test {
 protected:
  UploadsTest() {
    char name[] = "/tmp/uploads-XXXXXX";
    VERIFY(::mkdtemp(name) != nullptr);
    folder_ = name;
  }
  ~UploadsTest() override { std::filesystem::remove_all(folder_); }

  Uploads uploads(Uploads::Limits limits = {}) {
    Uploads made(folder_ + "/all", limits);
    EXPECT_TRUE(made.prepare().has_value());
    return made;
  }
  static Uploads::Owner ours(const std::string& id) { return {.team = "ours", .id = id}; }
  static Uploads::Owner theirs(const std::string& id) { return {.team = "theirs", .id = id}; }
  static void put(const Uploads& uploads, const Uploads::Owner& owner, const std::string& hash,
                  const std::string& text) {
    auto upload = uploads.begin(owner, hash);
    ASSERT_TRUE(upload.has_value()) << upload.error().message();
    ASSERT_TRUE((*upload)->append(text).has_value());
    ASSERT_TRUE((*upload)->keep().has_value());
  }
  void age(const std::string& path, int hours) const {
    std::filesystem::last_write_time(
        folder_ + path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_))
      count += entry.is_regular_file() ? 1 : 0;
    return count;
  }

  std::string folder_;
  const std::string two_blocks_ = std::string(8192, 'x');
};

TEST_F(UploadsTest, WhatIsKeptIsFoundUnderItsTemplateAndHash) {
  const Uploads all = uploads();
  EXPECT_FALSE(all.find(ours("t1"), "h1").has_value());
  put(all, ours("t1"), "h1", "bytes");
  const auto path = all.find(ours("t1"), "h1");
  ASSERT_TRUE(path.has_value());
  std::string text;
  std::ifstream(*path) >> text;
  EXPECT_EQ(text, "bytes");
  EXPECT_FALSE(all.find(ours("t2"), "h1").has_value());
  all.forget(ours("t1"));
  EXPECT_FALSE(all.find(ours("t1"), "h1").has_value());
}

TEST_F(UploadsTest, WhatIsBrokenOffLeavesNothing) {
  const Uploads all = uploads();
  {
    auto upload = all.begin(ours("t1"), "h1");
    ASSERT_TRUE((*upload)->append("a part").has_value());
    EXPECT_EQ(files(), 1u);
  }
  EXPECT_EQ(files(), 0u);
  // Of a server that died in the middle of one.
  std::ofstream(folder_ + "/all/ours/t1/h1.0123.part") << "a part";
  uploads();
  EXPECT_EQ(files(), 0u);
}

TEST_F(UploadsTest, MoreThanAllowedIsRefused) {
  const Uploads all = uploads({.file = 4, .team = 100, .total = 100});
  auto upload = all.begin(ours("t1"), "h1");
  EXPECT_TRUE((*upload)->append("four").has_value());
  const auto more = (*upload)->append("x");
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code(), Code::kOutOfRange);
}

TEST_F(UploadsTest, WhatWasUsedLongestAgoMakesRoom) {
  const Uploads all = uploads({.file = 8192, .team = 16384, .total = 1 << 20});
  put(all, ours("t1"), "h1", two_blocks_);
  put(all, ours("t2"), "h2", two_blocks_);
  age("/all/ours/t1/h1", 2);
  age("/all/ours/t2/h2", 3);
  EXPECT_TRUE(all.find(ours("t2"), "h2").has_value());  // which is a use
  put(all, ours("t3"), "h3", two_blocks_);
  EXPECT_FALSE(all.find(ours("t1"), "h1").has_value());
  EXPECT_TRUE(all.find(ours("t2"), "h2").has_value());
  EXPECT_TRUE(all.find(ours("t3"), "h3").has_value());
}

TEST_F(UploadsTest, NoTeamPushesOutWhatAnotherSent) {
  const Uploads all = uploads({.file = 8192, .team = 1 << 20, .total = 5 * 8192});
  put(all, theirs("t9"), "h9", two_blocks_);
  age("/all/theirs/t9/h9", 9);
  for (const char* hash : {"h1", "h2", "h3", "h4", "h5"}) put(all, ours("t1"), hash, two_blocks_);
  // However long ago: they have less.
  EXPECT_TRUE(all.find(theirs("t9"), "h9").has_value());
  EXPECT_EQ(files(), 4u);  // and some room for the next one
  // Of their own they have no more than a team may.
  const Uploads small = uploads({.file = 8192, .team = 16384, .total = 1 << 20});
  put(small, theirs("t8"), "h8", two_blocks_);
  EXPECT_EQ(small.owners().size(), 3u);
  EXPECT_EQ(files(), 4u);  // two of each team
}

TEST_F(UploadsTest, EmptyFilesAreBoundedToo) {
  const Uploads few =
      uploads({.file = 1 << 20, .team = 1 << 20, .total = 1 << 20, .team_files = 3});
  for (int i = 0; i < 8; ++i) {
    put(few, ours("t1"), "h" + std::to_string(i), "");
    age("/all/ours/t1/h" + std::to_string(i), 10 - i);
  }
  EXPECT_EQ(files(), 3u);
  EXPECT_TRUE(few.find(ours("t1"), "h7").has_value());
  // Each counts as a block.
  const Uploads small = uploads({.file = 4096, .team = 2 * 4096, .total = 1 << 20});
  EXPECT_EQ(files(), 2u);
  put(small, theirs("t2"), "h1", "");
  put(small, theirs("t2"), "h2", "x");
  put(small, theirs("t2"), "h3", "");
  EXPECT_EQ(files(), 4u);
}

TEST_F(UploadsTest, WhatGoesMakesRoomForOthers) {
  const Uploads all = uploads({.file = 8192, .team = 1 << 20, .total = 4 * 8192});
  for (const char* hash : {"h1", "h2", "h3"}) put(all, ours("t1"), hash, two_blocks_);
  all.forget(ours("t1"));
  for (const char* hash : {"h1", "h2", "h3", "h4"}) put(all, theirs("t2"), hash, two_blocks_);
  EXPECT_EQ(files(), 4u);
  // Nor do those that a server found when it started count twice.
  const Uploads again = uploads({.file = 8192, .team = 1 << 20, .total = 5 * 8192});
  put(again, ours("t1"), "h1", two_blocks_);
  EXPECT_EQ(files(), 5u);
}

TEST_F(UploadsTest, WhatIsSentToATemplateThatGoesIsLeftNowhere) {
  const Uploads all = uploads();
  auto upload = all.begin(ours("t1"), "h1");
  ASSERT_TRUE((*upload)->append("bytes").has_value());
  EXPECT_EQ(all.owners(), std::vector<Uploads::Owner>{ours("t1")});
  all.forget(ours("t1"));
  const Status kept = (*upload)->keep();
  EXPECT_EQ(kept.error().code(), Code::kNotFound);
  EXPECT_EQ(files(), 0u);
  EXPECT_TRUE(all.owners().empty());
}

TEST_F(UploadsTest, WhatAVersionKeptThatKnewNoTeamsGoes) {
  uploads();
  std::filesystem::create_directories(folder_ + "/all/t1");
  std::ofstream(folder_ + "/all/t1/h1") << "bytes";
  const Uploads all = uploads();
  EXPECT_EQ(files(), 0u);
  EXPECT_TRUE(all.owners().empty());
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/all"));
}

TEST_F(UploadsTest, AFolderThatCannotBeMadeIsSaid) {
  EXPECT_FALSE(Uploads("/proc/none", {}).prepare().has_value());
  EXPECT_FALSE(Uploads("/proc/none", {}).begin(ours("t"), "h").has_value());
}

}  // namespace
}  // namespace caisson::api
