#include "fleet/recipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::fleet {
namespace {

using testing::HasSubstr;

std::string refusal(const Result<Recipe>& recipe) {
  EXPECT_FALSE(recipe.has_value());
  return recipe.has_value() ? "" : recipe.error().message();
}

TEST(Recipe, AnEmptySpecChangesNothing) {
  const Recipe recipe{.image = "base", .layer = policy::LayerKind::kQuota};
  EXPECT_EQ(*lay_over(recipe, "{}"), recipe);
}

TEST(Recipe, WhatASpecSaysOfOthersThanTheSandboxItselfMakesNoOtherRecipe) {
  const Recipe recipe{.image = "base", .layer = policy::LayerKind::kQuota};
  EXPECT_EQ(*lay_over(recipe, R"({"image":"x","env":{"A":"b"},"limits":{"timeout":"5m"}})"),
            recipe);
}

TEST(Recipe, ASpecIsLaidOverIt) {
  const Recipe recipe{
      .image = "base", .memory_bytes = 1ull << 30, .layer = policy::LayerKind::kQuota};
  const auto asked = lay_over(recipe, R"({
      "limits":{"cpus":0.5,"pids":64,"output":"1MiB","cpu_time":"3s"},"privileges":"none",
      "profile":"debug","on_refusal":"kill","layer":"tmpfs","user":"1000","workdir":"/srv",
      "hostname":"box","require_hard_limits":true})");
  ASSERT_TRUE(asked.has_value()) << asked.error().message();
  EXPECT_EQ(asked->image, "base");
  EXPECT_EQ(asked->cpu_milli, 500u);
  EXPECT_EQ(asked->memory_bytes, 1ull << 30) << "as before";
  EXPECT_EQ(asked->pids, 64u);
  EXPECT_EQ(asked->output, 1u << 20);
  EXPECT_EQ(asked->cpu_time_ms, 3000u);
  EXPECT_EQ(asked->privileges, policy::Privileges::kNone);
  EXPECT_EQ(asked->profile, policy::SyscallProfile::kDebug);
  EXPECT_EQ(asked->on_refusal, policy::OnRefusal::kKill);
  EXPECT_EQ(asked->layer, policy::LayerKind::kTmpfs);
  EXPECT_EQ(asked->user, "1000");
  EXPECT_EQ(asked->workdir, "/srv");
  EXPECT_EQ(asked->hostname, "box");
  EXPECT_TRUE(asked->require_hard_limits);
  EXPECT_EQ(*lay_over(*asked, "{}"), *asked);
}

TEST(Recipe, WhatNobodyAskedForStaysUsual) {
  const Recipe before{.image = "base", .memory_bytes = 8ull << 30, .pids = 100};
  const Recipe usual{.image = "base", .memory_bytes = 1ull << 30, .pids = 50};
  const Recipe asked{.image = "base", .memory_bytes = 8ull << 30, .pids = 80};
  const Recipe merged = merge_limits(usual, before, asked);
  EXPECT_EQ(merged.memory_bytes, 1ull << 30);
  EXPECT_EQ(merged.pids, 80u);
}

TEST(Recipe, WhatIsNotServedIsRefusedByItsKey) {
  const Recipe recipe{.image = "base", .layer = policy::LayerKind::kQuota};
  EXPECT_THAT(refusal(lay_over(recipe, R"({"files":[{"from":"/etc","to":"/mnt","mode":"ro"}]})")),
              HasSubstr("files[from=\"/etc\"]: found a path of the host"));
  EXPECT_THAT(refusal(lay_over(recipe, R"({"files":[{"out":"/tmp/x","to":"/etc/passwd"}]})")),
              HasSubstr("files[out=\"/tmp/x\"]"));
  EXPECT_THAT(refusal(lay_over(recipe, R"({"command":["ls"]})")), HasSubstr("command: found"));
  EXPECT_THAT(refusal(lay_over(recipe, R"({"entrypoint":[]})")), HasSubstr("entrypoint: found"));
  EXPECT_THAT(refusal(lay_over(recipe, R"({"limits":{"memory":"1KiB"}})")),
              HasSubstr("limits.memory"));
  EXPECT_THAT(refusal(lay_over(recipe, R"({"limmits":{}})")), HasSubstr("limmits"));
  EXPECT_THAT(refusal(lay_over(recipe, R"({"network":"allow"})")), HasSubstr("network"));
  EXPECT_THAT(refusal(lay_over(recipe, R"({"network":{"rules":[{"hosts":["a.example.com"]}],)"
                                       R"("secrets":{"gh":{"source":{"env":"HOME"},)"
                                       R"("hosts":["a.example.com"]}}}})")),
              HasSubstr("network.secrets.gh.source: found a source of this host's"));
}

TEST(RecipeText, IsReadAsTheSame) {
  Recipe all{.image = "sha256:0123", .cpu_milli = std::nullopt, .memory_bytes = 77'777'777};
  all.io_read = 1 << 20;
  all.wall = policy::WallKind::kMicrovm;
  all.on_refusal = policy::OnRefusal::kKill;
  all.layer = policy::LayerKind::kQuota;
  all.require_hard_limits = true;
  all.user = "root";
  all.workdir = "/srv";
  all.hostname = "box";
  for (const Recipe& recipe : {Recipe{.image = "base"}, all}) {
    const auto text = recipe_json(recipe);
    ASSERT_TRUE(text.has_value()) << text.error().message();
    EXPECT_EQ(parse_recipe(*text).value(), recipe);
  }
  EXPECT_FALSE(recipe_json(Recipe{.image = "base", .hostname = "not a name"}).has_value());
  EXPECT_FALSE(parse_recipe(json::Value(7)).has_value());
}

}  // namespace
}  // namespace caisson::fleet
