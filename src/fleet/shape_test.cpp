#include "fleet/shape.h"

#include <gtest/gtest.h>

namespace caisson::fleet {
namespace {

TEST(Shape, ComesBackAsItWas) {
  Shape before;
  before.recipe = {.image = "sha256:abc", .cpu_milli = 1500, .pids = 7};
  before.recipe.privileges = policy::Privileges::kNone;
  before.recipe.user = "root";
  before.recipe.workdir = "/srv";
  before.recipe.memory_bytes = std::nullopt;
  before.start = {.command = "serve", .ready = "check", .label = "label"};
  const auto after = decode_shape(encode_shape(before).value());
  ASSERT_TRUE(after.has_value()) << after.error().message();
  Recipe recipe = after->recipe;
  recipe.image = before.recipe.image;
  EXPECT_EQ(recipe, before.recipe);
  EXPECT_EQ(after->start, before.start);
}

TEST(Shape, WhatNoSpecCanSayIsAnError) {
  Shape shape;
  shape.recipe.user = "no\nuser";
  EXPECT_EQ(encode_shape(shape).error().code(), Code::kInvalidArgument);
}

TEST(Shape, WhatIsNoneIsAnError) {
  for (const char* text : {"", "x", "{}", "[]", R"({"recipe":{"unheard_of":1},"start":{}})",
                           R"({"recipe":{},"start":{"command":1}})"})
    EXPECT_FALSE(decode_shape(text).has_value()) << text;
}

}  // namespace
}  // namespace caisson::fleet
