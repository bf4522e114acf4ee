#include "build/copy_content.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "image/archive_for_test.h"

namespace caisson::build {
namespace {

using image::testing::Tar;
using image::testing::TemporaryDirectory;
using ::testing::Ne;
using ::testing::StartsWith;

class Archives : public ::testing::Test {
 protected:
  // A tar of one file, as it would be handed in.
  static Fd archive(const std::string& text) {
    return image::testing::memory_file(Tar().add({.name = "f", .data = text}).bytes());
  }
  static CopyAction action() {
    CopyAction action;
    action.from = CopyStep::From::kArchive;
    action.archive = "claimed";
    action.sources = {"f"};
    return action;
  }
  Result<std::string> find() {
    parts_.clear();
    return CopyContent(store_, options_).find(action(), nullptr, parts_);
  }

  TemporaryDirectory folder_;
  image::Store store_ = image::Store::open_at(folder_ / "store").value();
  BuildOptions options_;
  std::vector<CopyPart> parts_;
};

TEST_F(Archives, AreKnownByTheirBytesNotByWhatTheyAreCalled) {
  const Fd mine = archive("mine");
  options_.archives["claimed"] = mine.get();
  const std::string key = find().value();
  EXPECT_THAT(key, StartsWith("archive:"));
  EXPECT_EQ(find().value(), key);
  const Fd yours = archive("yours");
  options_.archives["claimed"] = yours.get();
  EXPECT_THAT(find().value(), Ne(key));
}

TEST_F(Archives, AreNotFoundWhereNobodyHandedThemIn) {
  EXPECT_EQ(find().error().message(), "the files 'claimed' were not handed in");
}

TEST_F(Archives, ThatChangeAfterTheyWereDigestedAreNotTaken) {
  const Fd file = archive("mine");
  options_.archives["claimed"] = file.get();
  CopyContent content(store_, options_);
  ASSERT_TRUE(find().has_value());
  EXPECT_TRUE(content.open(action(), nullptr, parts_).has_value());
  ASSERT_TRUE(find().has_value());
  ASSERT_EQ(::pwrite(file.get(), "evil", 4, 512), 4);
  const auto opened = content.open(action(), nullptr, parts_);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code(), Code::kDataLoss) << opened.error().message();
}

}  // namespace
}  // namespace caisson::build
