// caisson team create, ls, set: the teams of the server, and how much each may have.
#include <string>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/server_database.h"
#include "cli/table.h"
#include "db/teams.h"
#include "policy/units.h"

namespace caisson::cli {
namespace {

using policy::LimitUnit;

constexpr Option kRunning = {
    .name = "--max-running", .value = "COUNT", .help = "Sandboxes that run at a time."};
constexpr Option kCpus = {
    .name = "--max-cpus", .value = "CPUS", .help = "Processors of one sandbox."};
constexpr Option kMemory = {
    .name = "--max-memory", .value = "SIZE", .help = "Memory of one sandbox."};
constexpr Option kDisk = {
    .name = "--max-disk", .value = "SIZE", .help = "What one sandbox may write."};
constexpr Option kLifetime = {
    .name = "--max-lifetime", .value = "TIME", .help = "How long one sandbox may live."};

// Each quota, its option and what it is counted in.
struct QuotaRule {
  const Option* option;
  std::string_view key;
  std::string_view head;
  std::optional<std::uint64_t> db::Quota::* value;
  LimitUnit unit;
};
constexpr std::array<QuotaRule, 5> kRules = {{
    {&kRunning, "max_running", "RUNNING", &db::Quota::running, LimitUnit::kCount},
    {&kCpus, "max_cpus", "CPUS", &db::Quota::cpu_milli, LimitUnit::kCpus},
    {&kMemory, "max_memory", "MEMORY", &db::Quota::memory, LimitUnit::kBytes},
    {&kDisk, "max_disk", "DISK", &db::Quota::disk, LimitUnit::kBytes},
    {&kLifetime, "max_lifetime", "LIFETIME", &db::Quota::lifetime_ms, LimitUnit::kDuration},
}};

constexpr std::array<Option, 5> kQuotaOptions = {{kRunning, kCpus, kMemory, kDisk, kLifetime}};
constexpr std::array<Option, 2> kCreateOptions = {{
    {.name = "--name", .value = "NAME", .help = "What people call it."},
    kStateDirectoryOption,
}};
constexpr std::array<OptionGroup, 2> kCreateGroups = {
    {{"Options", kCreateOptions}, {"The most that it may have", kQuotaOptions}}};
constexpr std::array<Example, 1> kCreateExamples = {
    {{"caisson team create ci --max-running 20 --max-lifetime 1h", "a team for tests"}}};

constexpr std::array<Option, 3> kLsOptions = {{
    {.name = "--json", .help = "Print one line of JSON: a list."},
    {.name = "--quiet", .letter = 'q', .help = "Print names alone."},
    kStateDirectoryOption,
}};
constexpr std::array<OptionGroup, 1> kLsGroups = {{{"Options", kLsOptions}}};
constexpr std::array<Example, 1> kLsExamples = {
    {{"caisson team ls", "which teams there are, and what they may have"}}};

constexpr std::array<Option, 1> kSetOptions = {{kStateDirectoryOption}};
constexpr std::array<OptionGroup, 2> kSetGroups = {
    {{"The most that it may have", kQuotaOptions}, {"Options", kSetOptions}}};
constexpr std::array<Example, 1> kSetExamples = {
    {{"caisson team set default --max-memory 2GiB --max-running unlimited",
      "change these two and leave the others"}}};

constexpr std::string_view kCreateText =
    "What is not given, or given as unlimited, is limited by the server's configuration alone.";
constexpr std::string_view kSetText =
    "What is not given stays as it is; what is given as unlimited is limited by the server's "
    "configuration alone. A running server knows of it within five seconds; sandboxes that there "
    "are "
    "already are left as they are.";

// Puts what was given over what is there.
Status read_quota(const Parsed& parsed, db::Quota& quota) {
  for (const QuotaRule& rule : kRules) {
    if (!parsed.has(rule.option->name)) continue;
    auto value = policy::parse_limit(rule.unit, parsed.value(rule.option->name));
    if (!value.has_value()) return fail(std::move(value).error().with(rule.option->name));
    quota.*rule.value = *value;
  }
  return {};
}

Status create(const Parsed& parsed) {
  db::Quota quota;
  TRY(read_quota(parsed, quota));
  TRY_ASSIGN(db::Database database, open_server_database(parsed));
  const std::string& slug = parsed.arguments[0];
  const std::string name = parsed.has("--name") ? parsed.value("--name") : slug;
  TRY(db::Teams(database).create(slug, name, quota, now_ms()));
  return {};
}

json::Value json_of(const db::Team& team) {
  json::Value entry = json::Value::object();
  entry.set("team", team.slug).set("id", team.id).set("name", team.name);
  entry.set("created_ms", team.created_ms);
  for (const QuotaRule& rule : kRules) {
    entry.set(rule.key, policy::format_limit(rule.unit, team.quota.*rule.value));
  }
  return entry;
}

Status list(const Parsed& parsed) {
  TRY_ASSIGN(db::Database database, open_server_database(parsed));
  TRY_ASSIGN(const std::vector<db::Team> teams, db::Teams(database).list());
  if (parsed.has("--json")) {
    json::Value all = json::Value::array();
    for (const db::Team& team : teams) all.push(json_of(team));
    write_all(1, json::serialize(all) + "\n");
    return {};
  }
  if (parsed.has("--quiet")) {
    for (const db::Team& team : teams) write_all(1, team.slug + "\n");
    return {};
  }
  std::vector<std::string> head = {"TEAM"};
  for (const QuotaRule& rule : kRules) head.emplace_back(rule.head);
  head.emplace_back("NAME");
  TextTable table(std::move(head));
  for (const db::Team& team : teams) {
    std::vector<std::string> row = {team.slug};
    for (const QuotaRule& rule : kRules) {
      row.push_back(policy::format_limit(rule.unit, team.quota.*rule.value));
    }
    row.push_back(team.name);
    table.add(std::move(row));
  }
  write_all(1, table.text());
  return {};
}

Status set(const Parsed& parsed) {
  TRY_ASSIGN(db::Database database, open_server_database(parsed));
  db::Teams teams(database);
  TRY_ASSIGN(db::Team team, teams.find(parsed.arguments[0]));
  TRY(read_quota(parsed, team.quota));
  return teams.set_quota(team.id, team.quota);
}

int exit_status(const Status& done) {
  return done.has_value() ? 0 : say_error(done.error());
}

}  // namespace

constinit const CommandTable kTeamCreateTable = {.name = "team create",
                                                 .synopsis = "[OPTIONS] TEAM",
                                                 .summary = "Make a team of the server",
                                                 .text = kCreateText,
                                                 .groups = kCreateGroups,
                                                 .examples = kCreateExamples};
constinit const CommandTable kTeamLsTable = {.name = "team ls",
                                             .synopsis = "[OPTIONS]",
                                             .summary = "List the teams of the server",
                                             .text = "",
                                             .groups = kLsGroups,
                                             .examples = kLsExamples};
constinit const CommandTable kTeamSetTable = {.name = "team set",
                                              .synopsis = "[OPTIONS] TEAM",
                                              .summary = "Change how much a team may have",
                                              .text = kSetText,
                                              .groups = kSetGroups,
                                              .examples = kSetExamples};

int run_team_create(const Parsed& parsed) {
  if (parsed.arguments.size() != 1) {
    say("one team is needed; caisson team create TEAM");
    return kExitOwnError;
  }
  return exit_status(create(parsed));
}

int run_team_ls(const Parsed& parsed) {
  if (!parsed.arguments.empty()) {
    say("caisson team ls takes no arguments, '" + parsed.arguments[0] + "' was given");
    return kExitOwnError;
  }
  return exit_status(list(parsed));
}

int run_team_set(const Parsed& parsed) {
  if (parsed.arguments.size() != 1) {
    say("one team is needed; caisson team set TEAM");
    return kExitOwnError;
  }
  return exit_status(set(parsed));
}

}  // namespace caisson::cli
