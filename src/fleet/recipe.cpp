#include "fleet/recipe.h"

#include <string>
#include <utility>

#include "fleet/network.h"
#include "maker/recipe.h"
#include "policy/complain.h"
#include "policy/document.h"

namespace caisson::fleet {
namespace {

// Where a layer on disk cannot be held the host says so; that it fits into memory is judged there.
constexpr policy::LayerKind kUsualLayer = policy::LayerKind::kQuota;
constexpr std::string_view kLayer = "layer";

Status refuse_what_is_not_served(const policy::SpecValues& values) {
  if (!values.grants.empty())
    return fail(policy::wrong("files[from=" + policy::quote(values.grants.front().from) + "]",
                              "a path of the host",
                              "none: a server opens no path of its own host for a client; write "
                              "the files into the sandbox"));
  if (!values.outputs.empty())
    return fail(policy::wrong("files[out=" + policy::quote(values.outputs.front().path) + "]",
                              "a result for a path of the host",
                              "none: read the files from the sandbox"));
  if (!values.command.empty() || values.entrypoint.has_value())
    return fail(policy::wrong(values.command.empty() ? "entrypoint" : "command", "a program",
                              "none: a sandbox of a server has no main command; start commands in "
                              "it"));
  return {};
}

}  // namespace

Result<Recipe> lay_over(const Recipe& recipe, std::string_view spec) {
  TRY_ASSIGN(const policy::SpecValues usual, maker::values_of(recipe, kUsualLayer));
  TRY_ASSIGN(policy::SpecValues values, policy::parse_spec(spec, policy::Format::kJson, usual));
  TRY(refuse_what_is_not_served(values));
  if (values.network.has_value()) TRY(check_served(*values.network));
  // What is not the Internet's is this host's, or its neighbours'.
  if (values.network.has_value()) values.network->floor = policy::Floor::kFixed;
  TRY_ASSIGN(const SandboxSpec valid, SandboxSpec::validate(std::move(values)));
  Recipe wanted = maker::recipe_of(valid.values(), recipe.image);
  // Said in other words, it is the same sandbox, which may be ready.
  if (!recipe.layer.has_value() && *wanted.layer == usual.layer) wanted.layer.reset();
  return wanted;
}

Recipe merge_limits(const Recipe& usual, const Recipe& before, Recipe asked) {
  for (const maker::SameLimit& same : maker::kSameLimits) {
    if (asked.*same.recipe == before.*same.recipe) asked.*same.recipe = usual.*same.recipe;
  }
  return asked;
}

Result<json::Value> recipe_json(const Recipe& recipe) {
  TRY_ASSIGN(policy::SpecValues values, maker::values_of(recipe, kUsualLayer));
  TRY_ASSIGN(const SandboxSpec valid, SandboxSpec::validate(std::move(values)));
  TRY_ASSIGN(const json::Value spec, json::parse(policy::print_spec(valid, policy::Format::kJson)));
  json::Value::Object members = *spec.as_object();
  // That the layer is the host's choice is said by leaving it out.
  if (!recipe.layer.has_value())
    std::erase_if(members, [](const json::Member& member) { return member.key == kLayer; });
  return json::Value(std::move(members));
}

Result<Recipe> parse_recipe(const json::Value& value) {
  TRY_ASSIGN(const policy::SpecValues values,
             policy::parse_spec(json::serialize(value), policy::Format::kJson));
  Recipe recipe = maker::recipe_of(values, values.image);
  if (value.find(kLayer) == nullptr) recipe.layer.reset();
  return recipe;
}

}  // namespace caisson::fleet
