#include "fleet/quota.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "policy/complain.h"
#include "policy/names.h"
#include "policy/units.h"

namespace caisson::fleet {
namespace {

using policy::LimitUnit;
using policy::LimitValue;

struct Rule {
  std::string_view key;
  LimitUnit unit;
  LimitValue Quota::* most;
  LimitValue Recipe::* value;
};
constexpr std::array<Rule, 4> kRules = {{
    {"cpus", LimitUnit::kCpus, &Quota::cpu_milli, &Recipe::cpu_milli},
    {"memory", LimitUnit::kBytes, &Quota::memory_bytes, &Recipe::memory_bytes},
    {"disk", LimitUnit::kBytes, &Quota::disk_bytes, &Recipe::disk_bytes},
    {"pids", LimitUnit::kCount, &Quota::pids, &Recipe::pids},
}};

// nullopt is the most.
LimitValue lower(LimitValue one, LimitValue other) {
  if (!one.has_value()) return other;
  return other.has_value() ? std::min(*one, *other) : *one;
}

}  // namespace

Result<Recipe> recipe_within(const Quota& quota, Recipe recipe, Limits limits) {
  for (const Rule& rule : kRules) {
    LimitValue& value = recipe.*rule.value;
    const LimitValue most = quota.*rule.most;
    const LimitValue allowed = lower(value, most);
    if (allowed == value) continue;
    if (limits == Limits::kAsked)
      return fail(policy::wrong("limits." + std::string(rule.key),
                                policy::format_limit(rule.unit, value),
                                policy::format_limit(rule.unit, most) + " at most"));
    value = allowed;
  }
  using policy::SyscallProfile;
  if (recipe.profile != SyscallProfile::kDefault && recipe.profile != quota.profile) {
    const std::array allowed = {policy::to_string(SyscallProfile::kDefault),
                                policy::to_string(quota.profile)};
    const std::size_t count = allowed[0] == allowed[1] ? 1 : 2;
    return fail(
        policy::wrong("profile", std::string(policy::to_string(recipe.profile)),
                      policy::alternatives(allowed.data(), count) + " (limits.maximum.profile)"));
  }
  return recipe;
}

Status check_privileges(const Quota& quota, const Recipe& recipe) {
  using policy::Privileges;
  if (recipe.privileges == Privileges::kNone || quota.privileges == Privileges::kSudo) return {};
  return fail(policy::wrong("privileges", "sudo, which sandboxes have unless their spec says none",
                            "none alone on this server (limits.maximum.privileges)"));
}

Quota quota_of(const policy::ServerConfig& config, const db::Quota& team) {
  const policy::ServedLimits& most = config.maxima;
  Quota quota;
  quota.sandboxes =
      std::min<std::uint64_t>(config.max_sandboxes, team.running.value_or(config.max_sandboxes));
  const std::uint64_t paused = config.max_paused.value_or(config.max_sandboxes);
  quota.paused = std::min<std::uint64_t>(paused, team.running.value_or(paused));
  if (const LimitValue life = lower(most.lifetime_ms, team.lifetime_ms); life.has_value()) {
    const std::uint64_t longest = std::min<std::uint64_t>(*life / 1000, kLongestLife.count());
    quota.longest = std::chrono::seconds(longest);
  } else {
    quota.longest = kLongestLife;
  }
  quota.cpu_milli = lower(most.cpu_milli, team.cpu_milli);
  quota.memory_bytes = lower(most.memory, team.memory);
  quota.disk_bytes = lower(most.disk, team.disk);
  quota.pids = most.pids;
  quota.profile = config.most_profile;
  quota.privileges = config.most_privileges;
  return quota;
}

io::Async<Result<Quota>> DatabaseQuotas::of(std::string team) {
  const auto known = entries_.find(team);
  if (known != entries_.end() && known->second.until > io::Clock::now())
    co_return known->second.quota;
  auto work = [team](db::Database& database) { return db::Teams(database).find_id(team); };
  CO_TRY_ASSIGN(const db::Team found, co_await database_->with(std::move(work)));
  const Quota quota = quota_of(config_, found.quota);
  if (entries_.size() >= kMost) entries_.clear();
  entries_[team] = {quota, io::Clock::now() + kRemembered};
  co_return quota;
}

}  // namespace caisson::fleet
