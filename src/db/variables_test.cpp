#include "db/variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "db/database_for_test.h"

namespace caisson::db {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class VariablesTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string place_ = folder_.path() + "/served-env";
  Variables variables_ = Variables::open(folder_.path()).value();
};

TEST_F(VariablesTest, ComeBackAsTheyWere) {
  const Variables::Map map = {{"TOKEN", "s3cret\n\"ü"}, {"EMPTY", ""}};
  ASSERT_TRUE(variables_.put("i1", {{"OLD", "1"}}));
  ASSERT_TRUE(variables_.put("i1", map));
  EXPECT_EQ(variables_.get("i1").value(), map);
  EXPECT_THAT(variables_.get("i2").value(), IsEmpty());
  struct stat status{};
  ASSERT_EQ(::stat((place_ + "/i1").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(VariablesTest, GoWithTheirSandbox) {
  for (const char* id : {"i1", "i2", "i3"}) ASSERT_TRUE(variables_.put(id, {{"A", id}}));
  std::ofstream(place_ + "/i2.0123") << "half";
  ASSERT_TRUE(variables_.remove("i1"));
  ASSERT_TRUE(variables_.remove("i1"));
  EXPECT_THAT(variables_.get("i1").value(), IsEmpty());
  // Twice: each look begins at the start.
  ASSERT_TRUE(variables_.keep_only({"i2", "i3"}));
  ASSERT_TRUE(variables_.keep_only({"i2"}));
  EXPECT_EQ(variables_.get("i2")->at("A"), "i2");
  EXPECT_THAT(variables_.get("i3").value(), IsEmpty());
  EXPECT_FALSE(std::filesystem::exists(place_ + "/i2.0123"));
}

TEST_F(VariablesTest, AnIdLeadsNowhereElse) {
  for (const std::string& id :
       {std::string(), std::string(".."), std::string("../a"), std::string("a/b"), std::string("A"),
        std::string(65, 'a'), std::string("a\0", 2)}) {
    EXPECT_EQ(variables_.put(id, {}).error().code(), Code::kInvalidArgument) << id;
    EXPECT_EQ(variables_.get(id).error().code(), Code::kInvalidArgument) << id;
    EXPECT_EQ(variables_.remove(id).error().code(), Code::kInvalidArgument) << id;
  }
}

TEST_F(VariablesTest, WhatCannotBeKeptIsRefused) {
  EXPECT_THAT(variables_.put("i1", {{"A", "\xff"}}).error().message(), HasSubstr("UTF-8"));
  EXPECT_THAT(variables_.put("i1", {{"A", std::string(kMaxVariablesBytes, 'a')}}).error().message(),
              HasSubstr("allowed are"));
  EXPECT_THAT(variables_.get("i1").value(), IsEmpty());
}

TEST_F(VariablesTest, ADamagedFileIsSaid) {
  for (const char* text : {"", "[]", "{\"a\":1}"}) {
    std::ofstream(place_ + "/i1") << text;
    const auto map = variables_.get("i1");
    ASSERT_FALSE(map) << text;
    EXPECT_THAT(map.error().message(), HasSubstr("i1"));
  }
}

}  // namespace
}  // namespace caisson::db
