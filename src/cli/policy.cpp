// caisson policy check, explain: network policies before a sandbox runs under them.
#include <string>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/document_file.h"
#include "cli/messages.h"
#include "policy/network_explain.h"

namespace caisson::cli {
namespace {

constexpr int kExitDenied = 1;

constexpr std::array<Example, 1> kCheckExamples = {
    {{"caisson policy check net.yaml", "say whether the policy can be used, and what is wrong"}}};

constexpr std::array<Option, 2> kExplainOptions = {{
    {.name = "--method", .value = "METHOD", .help = "Of a request to http://…; default: GET."},
    {.name = "--json", .help = "Print one line of JSON."},
}};
constexpr std::array<OptionGroup, 1> kExplainGroups = {{{"Options", kExplainOptions}}};
constexpr std::array<Example, 2> kExplainExamples = {
    {{"caisson policy explain net.yaml https://api.example.com",
      "say whether the connection would be allowed, and by which rule"},
     {"caisson policy explain --method POST net.yaml http://api.example.com/v1/items",
      "the same for a request without TLS"}}};

Status check_arguments(const Parsed& parsed, std::size_t count, const char* wanted) {
  if (parsed.arguments.size() == count) return {};
  return fail(Error::invalid("found " + std::to_string(parsed.arguments.size()) +
                             " arguments; allowed is " + wanted));
}

// A preset too: what it lets through is nowhere else to be seen.
Result<policy::NetworkPolicy> policy_of(const std::string& argument) {
  if (!argument.starts_with("preset:")) return read_network_policy(argument);
  TRY_ASSIGN(GivenNetwork given, read_network(argument));
  return *std::move(given.network);
}

Status check(const Parsed& parsed) {
  TRY(check_arguments(parsed, 1, "one: the policy's file"));
  TRY_ASSIGN(const policy::NetworkPolicy policy, policy_of(parsed.arguments[0]));
  const std::size_t rules = policy.rules.size();
  write_all(1, "valid: " + std::to_string(rules) + (rules == 1 ? " rule" : " rules") + "\n");
  return {};
}

Result<int> explain(const Parsed& parsed) {
  TRY(check_arguments(parsed, 2, "two: the policy's file and a URL"));
  TRY_ASSIGN(const policy::NetworkPolicy values, policy_of(parsed.arguments[0]));
  TRY_ASSIGN(const auto policy, policy::CompiledNetwork::compile(values));
  const std::string method = parsed.has("--method") ? parsed.value("--method") : "GET";
  TRY_ASSIGN(const policy::NetworkExplanation explained,
             policy::explain(*policy, parsed.arguments[1], method));
  const policy::NetworkDecision& decision = explained.decision;
  if (parsed.has("--json")) {
    json::Value line = json::Value::object();
    line.set("decision", decision.allowed ? "allow" : "deny");
    line.set("reason", policy::to_string(decision.reason));
    line.set("rule", decision.rule.empty() ? json::Value() : json::Value(decision.rule));
    line.set("sentence", explained.sentence);
    write_all(1, json::serialize(line) + "\n");
  } else {
    const std::string word = decision.allowed ? "allowed: " : "denied: ";
    write_all(1, word + explained.sentence + "\n");
  }
  return decision.allowed ? 0 : kExitDenied;
}

}  // namespace

constinit const CommandTable kPolicyCheckTable = {
    .name = "policy check",
    .synopsis = "FILE",
    .summary = "Check a network policy",
    .text =
        "Reads the policy in FILE (YAML, or JSON where the name ends in .json; - is standard "
        "input) as --net FILE would, and says what is wrong with it, where, and what is "
        "allowed.\n\n"
        "docs/network.md of the sources, installed as /usr/share/doc/caisson/docs/network.md, has "
        "every key, with examples.",
    .examples = kCheckExamples,
    .complete = Complete::kFile};

constinit const CommandTable kPolicyExplainTable = {
    .name = "policy explain",
    .synopsis = "[OPTIONS] FILE|PRESET URL",
    .summary = "Say what a network policy would do with a URL, and by which rule",
    .text =
        "The policy is in FILE, or that of preset:NAME[=HOST] as --net takes it. URL is "
        "https://HOST[:PORT] for TLS, http://HOST[:PORT]/PATH for a request without it, or "
        "tcp://HOST:PORT for anything else. Nothing is resolved and nothing is connected to.\n\n"
        "The exit status is 0 where it would be allowed and 1 where not.",
    .groups = kExplainGroups,
    .examples = kExplainExamples,
    .complete = Complete::kFile};

int run_policy_check(const Parsed& parsed) {
  const Status done = check(parsed);
  return done.has_value() ? 0 : say_error(done.error());
}

int run_policy_explain(const Parsed& parsed) {
  const Result<int> done = explain(parsed);
  return done.has_value() ? *done : say_error(done.error());
}

}  // namespace caisson::cli
