// caisson kill: end sandboxes.
#include <caisson/sandbox.h>

#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/server_options.h"

namespace caisson::cli {
namespace {

constexpr std::array<Option, 1> kOptions = {{
    {.name = "--all", .letter = 'a', .help = "End every sandbox of this user."},
}};
constexpr std::array<OptionGroup, 2> kGroups = {{{"Options", kOptions}, kServerGroup}};
constexpr std::array<Example, 1> kExamples = {
    {{"caisson kill abcdefgh", "end it, with everything that runs in it"}}};

Status end_sandbox(Host& host, const std::string& id) {
  TRY_ASSIGN(const std::unique_ptr<HostedSandbox> sandbox, host.connect(id));
  return sandbox->end();
}

}  // namespace

constinit const CommandTable kKillTable = {
    .name = "kill",
    .synopsis = "ID... | --all",
    .summary = "End sandboxes, with everything that runs in them",
    .text = "Returns when nothing of them runs any more. Their files are gone.",
    .groups = kGroups,
    .examples = kExamples,
    .complete = Complete::kSandbox};

int run_kill(const Parsed& parsed, Host& host) {
  std::vector<std::string> ids = parsed.arguments;
  const bool all = parsed.has("--all");
  if (ids.empty() != all) {
    say(all ? "--all and sandbox ids: give one or the other"
            : "no sandbox given; caisson kill ID... or --all");
    return kExitOwnError;
  }
  if (all) {
    const auto list = host.list();
    if (!list.has_value()) return say_error(list.error());
    for (const SandboxInfo& info : *list) ids.push_back(info.id);
  }
  int status = 0;
  for (const std::string& id : ids) {
    const auto ended = end_sandbox(host, id);
    // With --all, one that ended by itself meanwhile is as wished.
    if (!ended.has_value() && !(all && ended.error().code() == Code::kNotFound))
      status = say_error(ended.error());
  }
  return status;
}

}  // namespace caisson::cli
