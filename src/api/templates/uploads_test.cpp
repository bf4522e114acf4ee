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
  static void put(const Uploads& uploads, const std::string& id, const std::string& hash,
                  const std::string& text) {
    auto upload = uploads.begin(id, hash);
    ASSERT_TRUE(upload.has_value()) << upload.error().message();
    ASSERT_TRUE((*upload)->append(text).has_value());
    ASSERT_TRUE((*upload)->keep().has_value());
  }
  std::size_t files() const {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_))
      count += entry.is_regular_file() ? 1 : 0;
    return count;
  }

  std::string folder_;
};

TEST_F(UploadsTest, WhatIsKeptIsFoundUnderItsTemplateAndHash) {
  const Uploads all = uploads();
  EXPECT_FALSE(all.find("t1", "h1").has_value());
  put(all, "t1", "h1", "bytes");
  const auto path = all.find("t1", "h1");
  ASSERT_TRUE(path.has_value());
  std::string text;
  std::ifstream(*path) >> text;
  EXPECT_EQ(text, "bytes");
  EXPECT_FALSE(all.find("t2", "h1").has_value());
  all.forget("t1");
  EXPECT_FALSE(all.find("t1", "h1").has_value());
}

TEST_F(UploadsTest, WhatIsBrokenOffLeavesNothing) {
  const Uploads all = uploads();
  {
    auto upload = all.begin("t1", "h1");
    ASSERT_TRUE((*upload)->append("a part").has_value());
    EXPECT_EQ(files(), 1u);
  }
  EXPECT_EQ(files(), 0u);
  // Of a server that died in the middle of one.
  std::ofstream(folder_ + "/all/t1/h1.0123.part") << "a part";
  uploads();
  EXPECT_EQ(files(), 0u);
}

TEST_F(UploadsTest, MoreThanAllowedIsRefused) {
  const Uploads all = uploads({.file = 4, .total = 100});
  auto upload = all.begin("t1", "h1");
  EXPECT_TRUE((*upload)->append("four").has_value());
  const auto more = (*upload)->append("x");
  ASSERT_FALSE(more.has_value());
  EXPECT_EQ(more.error().code(), Code::kOutOfRange);
}

TEST_F(UploadsTest, WhatWasUsedLongestAgoMakesRoom) {
  const Uploads all = uploads({.file = 10, .total = 10});
  put(all, "t1", "h1", "12345");
  put(all, "t2", "h2", "12345");
  const auto age = [&](const char* path, int hours) {
    std::filesystem::last_write_time(
        folder_ + path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
  };
  age("/all/t1/h1", 2);
  age("/all/t2/h2", 3);
  EXPECT_TRUE(all.find("t2", "h2").has_value());  // which is a use
  put(all, "t3", "h3", "12345");
  EXPECT_FALSE(all.find("t1", "h1").has_value());
  EXPECT_TRUE(all.find("t2", "h2").has_value());
  EXPECT_TRUE(all.find("t3", "h3").has_value());
}

TEST_F(UploadsTest, AFolderThatCannotBeMadeIsSaid) {
  EXPECT_FALSE(Uploads("/proc/none", {}).prepare().has_value());
  EXPECT_FALSE(Uploads("/proc/none", {}).begin("t", "h").has_value());
}

}  // namespace
}  // namespace caisson::api
