// caisson pause and caisson resume: hold what runs in a sandbox, and let it go on.
#include <caisson/sandbox.h>

#include <string>

#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/server_options.h"

namespace caisson::cli {
namespace {

constexpr std::array<OptionGroup, 1> kGroups = {{kServerGroup}};
constexpr std::array<Example, 1> kPauseExamples = {
    {{"caisson pause abcdefgh", "stop everything that runs in it; memory and files stay"}}};
constexpr std::array<Example, 1> kResumeExamples = {
    {{"caisson resume abcdefgh", "let it go on where it was"}}};

int for_each(const Parsed& parsed, Host& host, std::string_view verb,
             Status (HostedSandbox::*act)()) {
  if (parsed.arguments.empty()) {
    say("no sandbox given; caisson " + std::string(verb) + " ID...");
    return kExitOwnError;
  }
  int status = 0;
  for (const std::string& id : parsed.arguments) {
    auto sandbox = host.connect(id);
    if (!sandbox.has_value()) {
      status = say_error(sandbox.error());
      continue;
    }
    if (const auto done = ((**sandbox).*act)(); !done.has_value()) status = say_error(done.error());
  }
  return status;
}

}  // namespace

constinit const CommandTable kPauseTable = {
    .name = "pause",
    .synopsis = "[OPTIONS] ID...",
    .summary = "Hold everything that runs in sandboxes",
    .text =
        "Processes keep their memory and their numbers and use no processor until caisson resume. "
        "caisson cp works meanwhile, caisson exec does not. A sandbox's time goes on to count, and "
        "caisson kill ends it as ever.\n\n"
        "Control groups do it: version 2, or the freezer of version 1. Where this user may make "
        "none, a sandbox cannot be paused; see caisson doctor.",
    .groups = kGroups,
    .examples = kPauseExamples,
    .complete = Complete::kSandbox};

constinit const CommandTable kResumeTable = {.name = "resume",
                                             .synopsis = "[OPTIONS] ID...",
                                             .summary = "Let paused sandboxes go on",
                                             .text = "One that is not paused stays as it is.",
                                             .groups = kGroups,
                                             .examples = kResumeExamples,
                                             .complete = Complete::kSandbox};

int run_pause(const Parsed& parsed, Host& host) {
  return for_each(parsed, host, "pause", &HostedSandbox::pause);
}

int run_resume(const Parsed& parsed, Host& host) {
  return for_each(parsed, host, "resume", &HostedSandbox::resume);
}

}  // namespace caisson::cli
