// The command line as one table: every command, option and example is written once, and parsing,
// `--help`, man pages and shell completions all come from it.
//
// Tables are constant data; nothing is built at start-up. Options may stand before or after a
// command's positional arguments, except where the command takes a program to run (`trailing`):
// then the first positional argument, or `--`, ends the options. `--name VALUE`, `--name=VALUE`,
// `-n VALUE` and `-nVALUE` are the same; flags without a value may be joined (`-di`).
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::cli {

// What the shell offers behind an option or as an argument.
enum class Complete : unsigned char { kNothing, kFile, kDirectory, kImage, kSandbox, kWords };

struct Option {
  std::string_view name;   // "--memory"
  char letter = 0;         // 'f' for -f
  std::string_view value;  // "SIZE"; empty: takes none
  std::string_view help;   // one sentence or two, without a final line break
  Complete complete = Complete::kNothing;
  std::string_view words;  // kWords: separated by spaces
  bool hidden = false;
};

struct OptionGroup {
  std::string_view title;
  std::span<const Option> options;
};

struct Example {
  std::string_view line;
  std::string_view what;
};

struct CommandTable {
  std::string_view name;      // "run", "image import"
  std::string_view synopsis;  // "[OPTIONS] -- PROGRAM [ARGUMENT…]"
  std::string_view summary;   // one line, no full stop
  std::string_view text;      // paragraphs, separated by an empty line
  std::span<const OptionGroup> groups;
  std::span<const Example> examples;
  bool trailing = false;  // everything from the first positional argument on belongs to a program
  Complete complete = Complete::kNothing;  // of positional arguments
  std::string_view words;
  bool hidden = false;
};

struct Parsed {
  struct Given {
    const Option* option;
    std::string value;
  };
  std::vector<Given> options;  // in the order given
  std::vector<std::string> arguments;
  bool help = false;

  bool has(std::string_view name) const;
  // The last value given; empty where the option was not.
  std::string value(std::string_view name) const;
};

// `arguments` are those behind the command's name. The error names the option, and where there is a
// similar one, suggests it.
Result<Parsed> parse_arguments(const CommandTable& command, std::span<char* const> arguments);

// The text of `caisson COMMAND --help`, and of `caisson --help` (a list of commands).
std::string help_text(const CommandTable& command);
std::string overview_text(std::span<const CommandTable* const> commands);
// The text of `caisson GROUP --help`, of commands with two words ("image"); empty: no such group.
std::string group_text(std::string_view word, std::span<const CommandTable* const> commands);
// A man page in roff: caisson-run(1), and caisson(1) for the whole.
std::string man_page(const CommandTable& command);
std::string man_overview(std::span<const CommandTable* const> commands);
// A completion script. shell: bash, zsh or fish. Error: invalid_argument.
Result<std::string> completion_script(std::string_view shell,
                                      std::span<const CommandTable* const> commands);

// The entry of `names` that is one or two slips of the finger away from `given`; empty: none.
std::string_view similar(std::string_view given, std::span<const std::string_view> names);

}  // namespace caisson::cli
