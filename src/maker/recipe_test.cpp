#include "maker/recipe.h"

#include <gtest/gtest.h>

namespace caisson::maker {
namespace {

using policy::LayerKind;
using policy::LimitValue;

constexpr std::uint64_t kMiB = 1ull << 20;

struct Row {
  LayerKind usual;
  LimitValue memory, disk;
  LimitValue found;
};

TEST(RecipeLayer, FilesThatLieInMemoryUnaskedFitIntoIt) {
  const Row rows[] = {
      // The defaults of a server, of which an ordinary user's lies in memory.
      {LayerKind::kTmpfs, 512 * kMiB, 1024 * kMiB, 256 * kMiB},
      {LayerKind::kTmpfs, 512 * kMiB, std::nullopt, 256 * kMiB},
      {LayerKind::kTmpfs, 512 * kMiB, 512 * kMiB, 512 * kMiB},
      {LayerKind::kTmpfs, 512 * kMiB, 64 * kMiB, 64 * kMiB},
      {LayerKind::kTmpfs, std::nullopt, 1024 * kMiB, 1024 * kMiB},
      {LayerKind::kQuota, 512 * kMiB, 1024 * kMiB, 1024 * kMiB},
  };
  for (const Row& row : rows) {
    Recipe recipe{.image = "base"};
    recipe.memory_bytes = row.memory;
    recipe.disk_bytes = row.disk;
    const policy::SpecValues values = values_of(recipe, row.usual).value();
    EXPECT_EQ(values.limits.disk, row.found);
    EXPECT_TRUE(SandboxSpec::validate(values).has_value());
  }
}

TEST(RecipeLayer, WhoAsksForMemoryIsToldWhatDoesNotFit) {
  Recipe recipe{.image = "base"};
  recipe.layer = LayerKind::kTmpfs;
  recipe.disk_bytes = 1024 * kMiB;
  const auto spec = SandboxSpec::validate(values_of(recipe, LayerKind::kQuota).value());
  EXPECT_EQ(spec.error().code(), Code::kInvalidArgument);
}

TEST(RecipeNetwork, ComesBackFromAndGoesIntoASpec) {
  Recipe recipe{.image = "base"};
  EXPECT_FALSE(values_of(recipe, LayerKind::kQuota)->network.has_value());
  policy::SpecValues values;
  values.network = policy::NetworkPolicy{.unmatched = policy::NetworkDefault::kAllowPublic};
  recipe = recipe_of(values, "base");
  EXPECT_EQ(values_of(recipe, LayerKind::kQuota)->network, values.network);
  recipe.network = "{";
  EXPECT_FALSE(values_of(recipe, LayerKind::kQuota).has_value());
}

}  // namespace
}  // namespace caisson::maker
