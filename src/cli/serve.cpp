// caisson serve: becomes the server's program, which this one is too small to be.
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "base/paths.h"
#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/serve.h"

namespace caisson::cli {
namespace {

constexpr std::array<OptionGroup, 1> kGroups = {{{"Options", kServeOptions}}};
constexpr std::array<Example, 3> kExamples = {
    {{"caisson serve", "at 127.0.0.1:3000; a first start in a terminal shows the first API key"},
     {"caisson serve --listen 0.0.0.0:3000 --max-sandboxes 200",
      "for others too, and no more than so many"},
     {"caisson serve --print-config", "what holds, as a file to begin with"}}};

}  // namespace

constinit const CommandTable kServeTable = {
    .name = "serve",
    .synopsis = "[OPTIONS]",
    .summary = "Serve sandboxes over HTTP",
    .text =
        "The API is the one that E2B's SDKs speak: set E2B_API_URL and E2B_SANDBOX_URL to the "
        "address, E2B_API_KEY to a key of caisson key create, and keep the code.\n\n"
        "Each option is a value of the configuration: /etc/caisson/caisson.yaml for root, "
        "~/.config/caisson/caisson.yaml for anybody else. CAISSON_SERVE_LISTEN and its like go "
        "before the file, options before both.\n\n"
        "Sandboxes outlive the server. When it starts again it takes up those that still run, with "
        "their commands and their deadlines; nothing else of them is lost either.",
    .groups = kGroups,
    .examples = kExamples};

int run_serve(const Parsed& parsed) {
  if (!parsed.arguments.empty()) {
    say("found '" + parsed.arguments[0] + "', caisson serve takes options alone");
    return kExitOwnError;
  }
  auto program = helper_binary("caisson-serve");
  if (!program.has_value()) return say_error(program.error());
  std::vector<std::string> words = {"caisson-serve"};
  for (const Parsed::Given& given : parsed.options) {
    words.emplace_back(given.option->name);
    if (!given.option->value.empty()) words.push_back(given.value);
  }
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(program->c_str(), pointers.data());
  return say_error(Error::syscall("start " + *program, errno));
}

}  // namespace caisson::cli
