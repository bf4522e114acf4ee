// caisson completion and caisson man: the texts that a package installs.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/fd.h"
#include "cli/commands.h"
#include "cli/messages.h"

namespace caisson::cli {
namespace {

constexpr std::array<Example, 1> kCompletionExamples = {
    {{"source <(caisson completion bash)", "completions for this shell"}}};
constexpr std::array<Example, 1> kManExamples = {
    {{"caisson man ./man1", "write the man pages into a folder"}}};

Status write_page(int directory_fd, const std::string& name, const std::string& text) {
  const Fd file(
      ::openat(directory_fd, name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!file.valid()) return fail_errno(name);
  if (!write_all(file.get(), text)) return fail_errno("write " + name);
  return {};
}

Status write_pages(const std::string& path) {
  const Fd directory(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return fail_errno("'" + path + "'");
  TRY(write_page(directory.get(), "caisson.1", man_overview(all_tables())));
  for (const CommandTable* table : all_tables()) {
    if (table->hidden) continue;
    std::string name = "caisson-" + std::string(table->name) + ".1";
    std::ranges::replace(name, ' ', '-');
    TRY(write_page(directory.get(), name, man_page(*table)));
  }
  return {};
}

}  // namespace

constinit const CommandTable kCompletionTable = {
    .name = "completion",
    .synopsis = "bash|zsh|fish",
    .summary = "Print a script that completes commands and options in a shell",
    .text = "",
    .groups = {},
    .examples = kCompletionExamples,
    .complete = Complete::kWords,
    .words = "bash zsh fish"};
constinit const CommandTable kManTable = {.name = "man",
                                          .synopsis = "DIRECTORY",
                                          .summary = "Write the man pages into a folder",
                                          .text = "",
                                          .groups = {},
                                          .examples = kManExamples,
                                          .complete = Complete::kDirectory,
                                          .hidden = true};

int run_completion(const Parsed& parsed) {
  if (parsed.arguments.size() != 1) {
    say("one shell is needed; caisson completion bash|zsh|fish");
    return kExitOwnError;
  }
  const auto script = completion_script(parsed.arguments[0], all_tables());
  if (!script.has_value()) return say_error(script.error());
  write_all(1, *script);
  return 0;
}

int run_man(const Parsed& parsed) {
  if (parsed.arguments.size() != 1) {
    say("one folder is needed; caisson man DIRECTORY");
    return kExitOwnError;
  }
  const auto written = write_pages(parsed.arguments[0]);
  return written.has_value() ? 0 : say_error(written.error());
}

}  // namespace caisson::cli
