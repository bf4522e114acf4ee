#include "maker/recipe.h"

#include "policy/network_document.h"

namespace caisson::maker {
namespace {

// Half, since what runs needs some for itself.
void fit_into_memory(policy::Limits& limits) {
  if (!limits.memory.has_value()) return;
  const bool fits = limits.disk.has_value() && *limits.disk <= *limits.memory;
  if (!fits) limits.disk = *limits.memory / 2;
}

}  // namespace

Recipe recipe_of(const policy::SpecValues& values, const std::string& image) {
  Recipe recipe{.image = image};
  for (const SameLimit& same : kSameLimits) recipe.*same.recipe = values.limits.*same.limits;
  recipe.wall = values.wall;
  recipe.privileges = values.privileges;
  recipe.profile = values.profile;
  recipe.on_refusal = values.on_refusal;
  recipe.layer = values.layer;
  recipe.allow_emulation = values.allow_emulation;
  recipe.require_hard_limits = values.require_hard_limits;
  recipe.user = values.user;
  recipe.workdir = values.workdir;
  recipe.hostname = values.hostname;
  if (values.network.has_value()) recipe.network = policy::written(*values.network);
  return recipe;
}

Result<policy::SpecValues> values_of(const Recipe& recipe, policy::LayerKind usual) {
  policy::SpecValues values;
  values.image = recipe.image;
  for (const SameLimit& same : kSameLimits) values.limits.*same.limits = recipe.*same.recipe;
  values.wall = recipe.wall;
  values.privileges = recipe.privileges;
  values.profile = recipe.profile;
  values.on_refusal = recipe.on_refusal;
  values.layer = recipe.layer.value_or(usual);
  if (!recipe.layer.has_value() && usual == policy::LayerKind::kTmpfs)
    fit_into_memory(values.limits);
  values.allow_emulation = recipe.allow_emulation;
  values.require_hard_limits = recipe.require_hard_limits;
  values.user = recipe.user;
  values.workdir = recipe.workdir;
  values.hostname = recipe.hostname;
  if (!recipe.network.empty()) {
    TRY_ASSIGN(values.network, policy::parse_written_network_policy(recipe.network));
  }
  return values;
}

}  // namespace caisson::maker
