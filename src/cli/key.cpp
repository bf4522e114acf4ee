// caisson key create, ls, rm: the API keys of the server, in its database.
#include "db/keys.h"

#include <string>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/server_database.h"
#include "cli/table.h"

namespace caisson::cli {
namespace {

constexpr std::array<Option, 4> kCreateOptions = {{
    kTeamOption,
    {.name = "--name", .value = "NAME", .help = "What to call it, for people."},
    {.name = "--json", .help = "Print one line of JSON."},
    kStateDirectoryOption,
}};
constexpr std::array<OptionGroup, 1> kCreateGroups = {{{"Options", kCreateOptions}}};
constexpr std::array<Example, 2> kCreateExamples = {
    {{"caisson key create --name laptop", "print a new key of the team named default"},
     {"export E2B_API_KEY=$(caisson key create)", "hand one to the SDKs of this shell"}}};

constexpr std::array<Option, 5> kLsOptions = {{
    kTeamOption,
    {.name = "--all", .letter = 'a', .help = "Those that were revoked, too."},
    {.name = "--json", .help = "Print one line of JSON: a list."},
    {.name = "--quiet", .letter = 'q', .help = "Print ids alone."},
    kStateDirectoryOption,
}};
constexpr std::array<OptionGroup, 1> kLsGroups = {{{"Options", kLsOptions}}};
constexpr std::array<Example, 1> kLsExamples = {
    {{"caisson key ls", "which keys there are, and when each was used"}}};

constexpr std::array<Option, 2> kRmOptions = {{kTeamOption, kStateDirectoryOption}};
constexpr std::array<OptionGroup, 1> kRmGroups = {{{"Options", kRmOptions}}};
constexpr std::array<Example, 1> kRmExamples = {
    {{"caisson key rm 3f5a9c1e", "the key that begins so is refused from now on"}}};

json::Value json_of(const db::ApiKey& key, const db::Team& team) {
  json::Value entry = json::Value::object();
  entry.set("id", key.id).set("team", team.slug).set("name", key.name).set("mask", key.mask);
  entry.set("created_ms", key.created_ms);
  if (key.last_used_ms.has_value()) entry.set("last_used_ms", *key.last_used_ms);
  if (key.revoked_ms.has_value()) entry.set("revoked_ms", *key.revoked_ms);
  return entry;
}

Status create(const Parsed& parsed) {
  TRY_ASSIGN(db::Database database, open_server_database(parsed));
  TRY_ASSIGN(const db::Team team, team_of(parsed, database));
  TRY_ASSIGN(const db::NewApiKey made,
             db::Keys(database).create(team.id, parsed.value("--name"), now_ms()));
  if (parsed.has("--json")) {
    json::Value entry = json_of(made.key, team);
    entry.set("key", made.secret);
    write_all(1, json::serialize(entry) + "\n");
    return {};
  }
  write_all(1, made.secret + "\n");
  note("keep it: it is shown this once");
  return {};
}

Status list(const Parsed& parsed) {
  TRY_ASSIGN(db::Database database, open_server_database(parsed));
  TRY_ASSIGN(const db::Team team, team_of(parsed, database));
  TRY_ASSIGN(std::vector<db::ApiKey> keys, db::Keys(database).list(team.id));
  if (!parsed.has("--all")) {
    std::erase_if(keys, [](const db::ApiKey& key) { return key.revoked_ms.has_value(); });
  }
  if (parsed.has("--json")) {
    json::Value all = json::Value::array();
    for (const db::ApiKey& key : keys) all.push(json_of(key, team));
    write_all(1, json::serialize(all) + "\n");
    return {};
  }
  if (parsed.has("--quiet")) {
    for (const db::ApiKey& key : keys) write_all(1, key.id + "\n");
    return {};
  }
  const std::int64_t now = now_ms();
  TextTable table({"ID", "KEY", "CREATED", "USED", "NAME"});
  for (const db::ApiKey& key : keys) {
    const std::string used =
        key.revoked_ms.has_value() ? "(revoked)" : age_text(key.last_used_ms, now);
    table.add({key.id.substr(0, 8), key.mask, age_text(key.created_ms, now), used, key.name});
  }
  write_all(1, table.text());
  return {};
}

Status remove(const Parsed& parsed) {
  TRY_ASSIGN(db::Database database, open_server_database(parsed));
  TRY_ASSIGN(const db::Team team, team_of(parsed, database));
  for (const std::string& id : parsed.arguments) {
    TRY(db::Keys(database).revoke(team.id, id, now_ms()));
  }
  return {};
}

int exit_status(const Status& done) {
  return done.has_value() ? 0 : say_error(done.error());
}

}  // namespace

constinit const CommandTable kKeyCreateTable = {
    .name = "key create",
    .synopsis = "[OPTIONS]",
    .summary = "Make an API key for the server and print it",
    .text =
        "The key is printed once; the database keeps what is enough to know it again. Whoever has "
        "the key may do all that its team may.\n\n"
        "The command works on the server's database, whether the server runs or not, and so must "
        "be run as the server's user or as root.",
    .groups = kCreateGroups,
    .examples = kCreateExamples};
constinit const CommandTable kKeyLsTable = {.name = "key ls",
                                            .synopsis = "[OPTIONS]",
                                            .summary = "List the API keys of a team",
                                            .text = "",
                                            .groups = kLsGroups,
                                            .examples = kLsExamples};
constinit const CommandTable kKeyRmTable = {
    .name = "key rm",
    .synopsis = "[OPTIONS] ID...",
    .summary = "Revoke API keys",
    .text =
        "ID is a key's id or its first eight or more characters. A server that runs refuses the "
        "key from its next request on; what was made with it stays.",
    .groups = kRmGroups,
    .examples = kRmExamples};

int run_key_create(const Parsed& parsed) {
  if (!parsed.arguments.empty()) {
    say("caisson key create takes no arguments, '" + parsed.arguments[0] +
        "' was given; a name is given by --name");
    return kExitOwnError;
  }
  return exit_status(create(parsed));
}

int run_key_ls(const Parsed& parsed) {
  if (!parsed.arguments.empty()) {
    say("caisson key ls takes no arguments, '" + parsed.arguments[0] +
        "' was given; a team is given by --team");
    return kExitOwnError;
  }
  return exit_status(list(parsed));
}

int run_key_rm(const Parsed& parsed) {
  if (parsed.arguments.empty()) {
    say("no key given; caisson key rm ID...");
    return kExitOwnError;
  }
  return exit_status(remove(parsed));
}

}  // namespace caisson::cli
