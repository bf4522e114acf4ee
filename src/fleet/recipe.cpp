#include "fleet/recipe.h"

#include <unistd.h>

#include <string>

#include "policy/complain.h"
#include "policy/document.h"

namespace caisson::fleet {
namespace {

// Where a member of a Recipe stands in a spec's limits.
struct SameLimit {
  std::string_view key;
  policy::LimitValue Recipe::* recipe;
  policy::LimitValue policy::Limits::* limits;
};
constexpr SameLimit kSameLimits[] = {
    {"cpus", &Recipe::cpu_milli, &policy::Limits::cpu_milli},
    {"memory", &Recipe::memory_bytes, &policy::Limits::memory},
    {"disk", &Recipe::disk_bytes, &policy::Limits::disk},
    {"pids", &Recipe::pids, &policy::Limits::pids},
    {"inodes", &Recipe::inodes, &policy::Limits::inodes},
    {"open_files", &Recipe::open_files, &policy::Limits::open_files},
    {"output", &Recipe::output, &policy::Limits::output},
    {"cpu_time", &Recipe::cpu_time_ms, &policy::Limits::cpu_time_ms},
    {"io_read", &Recipe::io_read, &policy::Limits::io_read},
    {"io_write", &Recipe::io_write, &policy::Limits::io_write},
    {"io_read_ops", &Recipe::io_read_ops, &policy::Limits::io_read_ops},
    {"io_write_ops", &Recipe::io_write_ops, &policy::Limits::io_write_ops},
};

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
  return recipe;
}

}  // namespace

policy::SpecValues values_of(const Recipe& recipe) {
  policy::SpecValues values;
  values.image = recipe.image;
  for (const SameLimit& same : kSameLimits) values.limits.*same.limits = recipe.*same.recipe;
  values.wall = recipe.wall;
  values.privileges = recipe.privileges;
  values.profile = recipe.profile;
  values.on_refusal = recipe.on_refusal;
  values.layer = recipe.layer.value_or(::geteuid() == 0 ? policy::LayerKind::kQuota
                                                        : policy::LayerKind::kTmpfs);
  values.allow_emulation = recipe.allow_emulation;
  values.require_hard_limits = recipe.require_hard_limits;
  values.user = recipe.user;
  values.workdir = recipe.workdir;
  values.hostname = recipe.hostname;
  return values;
}

Result<Recipe> lay_over(const Recipe& recipe, std::string_view spec) {
  TRY_ASSIGN(policy::SpecValues values,
             policy::parse_spec(spec, policy::Format::kJson, values_of(recipe)));
  TRY(refuse_what_is_not_served(values));
  TRY_ASSIGN(const SandboxSpec valid, SandboxSpec::validate(std::move(values)));
  Recipe wanted = recipe_of(valid.values(), recipe.image);
  // Said in other words, it is the same sandbox, which may be ready.
  if (!recipe.layer.has_value() && *wanted.layer == values_of(recipe).layer) wanted.layer.reset();
  return wanted;
}

Status check_maxima(const Recipe& recipe, const policy::ServedLimits& most) {
  const std::pair<policy::LimitValue, const SameLimit&> bounds[] = {
      {most.cpu_milli, kSameLimits[0]},
      {most.memory, kSameLimits[1]},
      {most.disk, kSameLimits[2]},
      {most.pids, kSameLimits[3]},
  };
  for (const auto& [bound, same] : bounds) {
    const policy::LimitValue wanted = recipe.*same.recipe;
    if (!bound.has_value() || (wanted.has_value() && *wanted <= *bound)) continue;
    const std::string_view unit = same.key == "cpus" ? " thousandths of a processor" : "";
    return fail(policy::wrong(
        "limits." + std::string(same.key),
        wanted.has_value() ? std::to_string(*wanted) + std::string(unit) : "unlimited",
        "at most " + std::to_string(*bound) + std::string(unit) +
            ", as this server's operator has it"));
  }
  return {};
}

}  // namespace caisson::fleet
