// caisson secret set, ls, rm: what a team keeps with its server, for sandboxes that are never told
// it.
#include <string>

#include "base/json.h"
#include "base/time_text.h"
#include "box/secrets.h"
#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/server_options.h"
#include "cli/table.h"
#include "policy/flags.h"

namespace caisson::cli {
namespace {

constexpr std::array<Option, 1> kSetOptions = {{
    {.name = "--from",
     .value = "SOURCE",
     .help = "Where the value is: env:VARIABLE, file:PATH, fd:N or command:PROGRAM. Default: "
             "standard input."},
}};
constexpr std::array<OptionGroup, 2> kSetGroups = {{{"Options", kSetOptions}, kServerGroup}};
constexpr std::array<Example, 2> kSetExamples = {
    {{"pass show forge | caisson secret set forge", "keep what another program prints"},
     {"caisson secret set forge --from file:/run/secrets/forge", "or what is in a file"}}};

constexpr std::array<Option, 2> kLsOptions = {{
    {.name = "--json", .help = "Print one line of JSON: a list."},
    {.name = "--quiet", .letter = 'q', .help = "Print names alone."},
}};
constexpr std::array<OptionGroup, 2> kLsGroups = {{{"Options", kLsOptions}, kServerGroup}};
constexpr std::array<Example, 1> kLsExamples = {
    {{"caisson secret ls", "which secrets there are; nothing prints a value"}}};

constexpr std::array<OptionGroup, 1> kRmGroups = {{kServerGroup}};
constexpr std::array<Example, 1> kRmExamples = {
    {{"caisson secret rm forge", "what sandboxes ask with it is refused from now on"}}};

Result<policy::SecretSource> source_of(const Parsed& parsed) {
  if (!parsed.has("--from"))
    return policy::SecretSource{.kind = policy::SecretSource::Kind::kFd, .descriptor = 0};
  auto source = policy::parse_secret_source(parsed.value("--from"));
  if (!source.has_value()) return fail(std::move(source).error().with("--from"));
  return source;
}

Status set(const Parsed& parsed, Host& host) {
  if (parsed.arguments.size() != 1)
    return fail(Error::invalid("found " + std::to_string(parsed.arguments.size()) +
                               " arguments; allowed is a name. The value is never one: it would be "
                               "seen by everybody on this host"));
  TRY_ASSIGN(const policy::SecretSource source, source_of(parsed));
  TRY_ASSIGN(SecretValue value, box::fetch_secret(source));
  return host.keep_secret(parsed.arguments[0], std::move(value));
}

std::string text_of(const json::Value& entry, std::string_view key) {
  const json::Value* found = entry.find(key);
  return found == nullptr || found->as_string() == nullptr ? "" : *found->as_string();
}

Status list(const Parsed& parsed, Host& host) {
  if (!parsed.arguments.empty())
    return fail(Error::invalid("found '" + parsed.arguments[0] + "'; allowed are no arguments"));
  TRY_ASSIGN(const json::Value::Array secrets, host.kept_secrets());
  if (parsed.has("--json")) {
    write_all(1, json::serialize(json::Value(secrets)) + "\n");
    return {};
  }
  TextTable table({"NAME", "VERSION", "UPDATED"});
  for (const json::Value& secret : secrets) {
    if (parsed.has("--quiet")) {
      write_all(1, text_of(secret, "name") + "\n");
      continue;
    }
    const json::Value* version = secret.find("currentVersion");
    table.add({text_of(secret, "name"), version == nullptr ? "" : json::serialize(*version),
               text_of(secret, "updatedAt")});
  }
  if (!parsed.has("--quiet")) write_all(1, table.text());
  return {};
}

Status remove(const Parsed& parsed, Host& host) {
  if (parsed.arguments.empty())
    return fail(Error::invalid("found no arguments; allowed are names of secrets"));
  for (const std::string& name : parsed.arguments) TRY(host.forget_secret(name));
  return {};
}

int exit_status(const Status& done) {
  return done.has_value() ? 0 : say_error(done.error());
}

}  // namespace

constinit const CommandTable kSecretSetTable = {
    .name = "secret set",
    .synopsis = "[OPTIONS] NAME",
    .summary = "Keep a secret with a server, or give one another value",
    .text =
        "Sandboxes of the server use it by a policy's secrets (source: {vault: NAME}) or by E2B's "
        "rules (${e2b.secrets.NAME}) and are never told it. Another value is at once what running "
        "sandboxes use. The server keeps it sealed, and prints it nowhere. Secrets of this host's "
        "own sandboxes are given to caisson run by --secret.",
    .groups = kSetGroups,
    .examples = kSetExamples};
constinit const CommandTable kSecretLsTable = {.name = "secret ls",
                                               .synopsis = "[OPTIONS]",
                                               .summary = "List the secrets that a server keeps",
                                               .text = "",
                                               .groups = kLsGroups,
                                               .examples = kLsExamples};
constinit const CommandTable kSecretRmTable = {
    .name = "secret rm",
    .synopsis = "[OPTIONS] NAME...",
    .summary = "Have a server forget secrets",
    .text = "What running sandboxes ask with them is refused from then on.",
    .groups = kRmGroups,
    .examples = kRmExamples};

int run_secret_set(const Parsed& parsed, Host& host) {
  return exit_status(set(parsed, host));
}

int run_secret_ls(const Parsed& parsed, Host& host) {
  return exit_status(list(parsed, host));
}

int run_secret_rm(const Parsed& parsed, Host& host) {
  return exit_status(remove(parsed, host));
}

}  // namespace caisson::cli
