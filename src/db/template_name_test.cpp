#include "db/template_name.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::db {
namespace {

using ::testing::HasSubstr;

TEST(TemplateName, HasUpToThreeParts) {
  EXPECT_EQ(parse_template_reference("base").value(), (TemplateReference{"", "base", "default"}));
  EXPECT_EQ(parse_template_reference("a-1/b_2:v1.2").value(),
            (TemplateReference{"a-1", "b_2", "v1.2"}));
}

TEST(TemplateName, WhatIsNoneIsRefused) {
  for (const std::string& text :
       {std::string(), std::string("name:"), std::string(":invalid-tag"), std::string("a/b/c"),
        std::string("/a"), std::string("a/"), std::string("A"), std::string("a:B"),
        std::string("a:b:c"), std::string("a b"), std::string("a.b"), std::string(129, 'a'),
        std::string("a\0", 2)}) {
    const auto reference = parse_template_reference(text);
    ASSERT_FALSE(reference) << text;
    EXPECT_EQ(reference.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(reference.error().message(), HasSubstr("; allowed is "));
  }
}

TEST(TemplateName, PartsAreCheckedAlone) {
  EXPECT_TRUE(check_template_name("a-b_1"));
  EXPECT_FALSE(check_template_name("a.b"));
  EXPECT_TRUE(check_template_tag("1.2-x"));
  EXPECT_FALSE(check_template_tag(""));
}

}  // namespace
}  // namespace caisson::db
