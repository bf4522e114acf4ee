// caisson policy apply: what may leave a sandbox that lives, from now on.
#include <optional>
#include <string>
#include <utility>

#include "cli/commands.h"
#include "cli/document_file.h"
#include "cli/messages.h"
#include "cli/server_options.h"
#include "policy/flags.h"

namespace caisson::cli {
namespace {

constexpr std::array<OptionGroup, 1> kGroups = {{kServerGroup}};
constexpr std::array<Example, 2> kExamples = {
    {{"caisson policy apply abcdefgh net.yaml", "let it reach what the policy in the file allows"},
     {"caisson policy apply abcdefgh deny", "end its connections and let it reach nothing"}}};

// As --net, which may be repeated there.
Result<std::optional<policy::NetworkPolicy>> wanted_network(const Parsed& parsed) {
  policy::SpecPatch patch;
  for (std::size_t at = 1; at < parsed.arguments.size(); ++at) {
    TRY_ASSIGN(GivenNetwork given, read_network(parsed.arguments[at]));
    TRY(policy::add_network(patch, std::move(given.network)));
  }
  return *std::move(patch.network);
}

Status apply(const Parsed& parsed, Host& host) {
  if (parsed.arguments.size() < 2)
    return fail(Error::invalid("found " + std::to_string(parsed.arguments.size()) +
                               " arguments; allowed are a sandbox's id and one POLICY or more"));
  TRY_ASSIGN(const std::optional<policy::NetworkPolicy> network, wanted_network(parsed));
  TRY_ASSIGN(const std::unique_ptr<HostedSandbox> sandbox, host.connect(parsed.arguments[0]));
  return sandbox->set_network(network);
}

}  // namespace

constinit const CommandTable kPolicyApplyTable = {
    .name = "policy apply",
    .synopsis = "[OPTIONS] ID POLICY...",
    .summary = "Change what a running sandbox may reach",
    .text =
        "POLICY is as of caisson run --net, and replaces the one that holds; connections that it "
        "denies are reset. Only of sandboxes that outlive whoever made them (caisson run -d --net, "
        "and those of a server), and that were made with a network.",
    .groups = kGroups,
    .examples = kExamples,
    .complete = Complete::kSandbox};

int run_policy_apply(const Parsed& parsed, Host& host) {
  const Status done = apply(parsed, host);
  return done.has_value() ? 0 : say_error(done.error());
}

}  // namespace caisson::cli
