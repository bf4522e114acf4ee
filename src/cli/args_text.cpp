// The texts that come from the command table: help, man pages and completions.
#include <algorithm>
#include <array>

#include "cli/args.h"

namespace caisson::cli {
namespace {

constexpr std::size_t kWidth = 80;
constexpr std::size_t kHelpColumn = 26;

// Breaks `text` into lines of at most `width`, each after the first indented.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width) {
  std::string out;
  std::size_t column = indent;
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (column > indent) {
      if (column + 1 + word.size() > width) {
        out += '\n';
        out.append(indent, ' ');
        column = indent;
      } else {
        out += ' ';
        ++column;
      }
    }
    out += word;
    column += word.size();
    at = end + 1;
  }
  return out;
}

template <typename Function>
void each_paragraph(std::string_view text, const Function& function) {
  while (!text.empty()) {
    const std::size_t end = text.find("\n\n");
    function(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 2);
  }
}

std::string option_head(const Option& option) {
  std::string head = option.letter != 0 ? std::string("-") + option.letter + ", " : "    ";
  head += option.name;
  if (!option.value.empty()) (head += ' ') += option.value;
  return head;
}

std::string dashed(std::string_view name) {
  std::string out(name);
  std::ranges::replace(out, ' ', '-');
  return out;
}

// Text for roff: backslashes and hyphens escaped, no line that begins with a control character.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string man_head(std::string_view name, std::string_view summary) {
  return ".TH " + roff(name) + " 1 \"\" \"caisson " CAISSON_VERSION "\" \"Caisson\"\n.SH NAME\n" +
         roff(name) + " \\- " + roff(summary) + "\n";
}

void man_options(std::string& out, const CommandTable& command) {
  for (const OptionGroup& group : command.groups) {
    out += ".SH " + roff(group.title) + "\n";
    for (const Option& option : group.options) {
      if (option.hidden) continue;
      out += ".TP\n.B ";
      if (option.letter != 0) out += std::string("\\-") + option.letter + ", ";
      out += roff(option.name);
      if (!option.value.empty()) out += " \\fI" + roff(option.value) + "\\fR";
      out += "\n" + roff(option.help) + "\n";
    }
  }
}

void man_examples(std::string& out, const CommandTable& command) {
  if (command.examples.empty()) return;
  out += ".SH EXAMPLES\n";
  for (const Example& example : command.examples)
    out += roff(example.what) + ":\n.PP\n.RS 4\n.nf\n" + roff(example.line) + "\n.fi\n.RE\n.PP\n";
}

constexpr std::string_view kImagesLine = "caisson image ls --quiet 2>/dev/null";
constexpr std::string_view kSandboxesLine = "caisson ps --quiet 2>/dev/null";

std::string single_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += "'\\''";
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string bash_reply(Complete complete, std::string_view words) {
  const std::string reply = "mapfile -t COMPREPLY < <(compgen ";
  switch (complete) {
    case Complete::kFile:
      return reply + "-f -- \"$word\")";
    case Complete::kDirectory:
      return reply + "-d -- \"$word\")";
    case Complete::kImage:
      return reply + "-W \"$(" + std::string(kImagesLine) + ")\" -- \"$word\")";
    case Complete::kSandbox:
      return reply + "-W \"$(" + std::string(kSandboxesLine) + ")\" -- \"$word\")";
    case Complete::kWords:
      return reply + "-W " + single_quoted(words) + " -- \"$word\")";
    case Complete::kNothing:
      break;
  }
  return ":";
}

// Commands of two words: the first one, and what stands behind it in a list of commands.
struct Group {
  std::string_view word;
  std::string_view summary;
};
constexpr std::array<Group, 6> kGroups = {{{"image", "Images of the local store"},
                                           {"key", "API keys of the server"},
                                           {"team", "Teams of the server"},
                                           {"policy", "Network policies"},
                                           {"secret", "Secrets that a server keeps"},
                                           {"audit", "What was let through and refused"}}};

bool is_of(const CommandTable& command, std::string_view group) {
  return !command.hidden && command.name.size() > group.size() && command.name.starts_with(group) &&
         command.name[group.size()] == ' ';
}

// The lines of the commands in a list of them.
void list_command(std::string& out, const CommandTable& command) {
  std::string head = "  " + std::string(command.name);
  head.append(head.size() < 18 ? 18 - head.size() : 1, ' ');
  out += head + wrapped(command.summary, 18, kWidth) + "\n";
}

// The second words of a group's commands.
std::string group_words(std::string_view group, std::span<const CommandTable* const> commands) {
  std::string words;
  for (const CommandTable* command : commands) {
    if (!is_of(*command, group)) continue;
    (words += words.empty() ? "" : " ") += command->name.substr(group.size() + 1);
  }
  return words;
}

std::string bash_script(std::span<const CommandTable* const> commands) {
  std::string names;
  for (const CommandTable* command : commands) {
    const std::string first(command->name.substr(0, command->name.find(' ')));
    if (!command->hidden && !(" " + names + " ").contains(" " + first + " "))
      names += (names.empty() ? "" : " ") + first;
  }
  std::string out =
      "# bash completion for caisson; made by `caisson completion bash`.\n"
      "_caisson() {\n"
      "  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\"\n"
      "  local command=\"${COMP_WORDS[1]}\" at=2 options=\"\"\n"
      "  if ((COMP_CWORD == 1)); then\n"
      "    mapfile -t COMPREPLY < <(compgen -W '" +
      names +
      " --help --version' -- \"$word\")\n"
      "    return\n  fi\n"
      "  if ((COMP_CWORD >= 3)); then\n    case \"$command\" in\n      ";
  for (std::size_t i = 0; i < kGroups.size(); ++i) (out += i == 0 ? "" : "|") += kGroups[i].word;
  out +=
      ") command=\"$command ${COMP_WORDS[2]}\" at=3 ;;\n    esac\n  fi\n"
      "  case \"$command\" in\n";
  for (const CommandTable* command : commands) {
    if (command->hidden) continue;
    out += "    " + single_quoted(command->name) + ")\n";
    std::string options = "--help";
    std::string cases;
    for (const OptionGroup& group : command->groups)
      for (const Option& option : group.options) {
        if (option.hidden) continue;
        (options += ' ') += option.name;
        if (option.value.empty()) continue;
        cases += "        " + std::string(option.name);
        if (option.letter != 0) cases += std::string("|-") + option.letter;
        cases += ") " + bash_reply(option.complete, option.words) + "; return ;;\n";
      }
    if (!cases.empty()) out += "      case \"$before\" in\n" + cases + "      esac\n";
    if (command->trailing)
      out +=
          "      local i\n      for ((i = at; i < COMP_CWORD; i++)); do\n"
          "        [[ ${COMP_WORDS[i]} == -- ]] && { COMPREPLY=(); compopt -o default; return; }\n"
          "      done\n";
    out +=
        "      if [[ $word == -* ]]; then\n"
        "        mapfile -t COMPREPLY < <(compgen -W '" +
        options + "' -- \"$word\")\n      else\n        " +
        bash_reply(command->complete, command->words) + "\n      fi ;;\n";
  }
  for (const Group& group : kGroups)
    out += "    " + std::string(group.word) + ") mapfile -t COMPREPLY < <(compgen -W '" +
           group_words(group.word, commands) + "' -- \"$word\") ;;\n";
  return out + "  esac\n}\ncomplete -F _caisson caisson\n";
}

std::string zsh_script() {
  // zsh runs bash's function by its own compatibility layer, so that there is one set of rules.
  return "#compdef caisson\n# zsh completion for caisson; made by `caisson completion zsh`.\n"
         "autoload -Uz bashcompinit && bashcompinit\n"
         "mapfile() { local line; COMPREPLY=(); while IFS= read -r line; do "
         "COMPREPLY+=(\"$line\"); "
         "done }\ncompopt() { : }\n";
}

std::string fish_words(Complete complete, std::string_view words) {
  switch (complete) {
    case Complete::kImage:
      return " -f -a '(" + std::string(kImagesLine) + ")'";
    case Complete::kSandbox:
      return " -f -a '(" + std::string(kSandboxesLine) + ")'";
    case Complete::kWords:
      return " -f -a " + single_quoted(words);
    case Complete::kFile:
      return " -F";
    case Complete::kDirectory:
      return " -f -a '(__fish_complete_directories)'";
    case Complete::kNothing:
      break;
  }
  return " -f";
}

std::string fish_script(std::span<const CommandTable* const> commands) {
  std::string out =
      "# fish completion for caisson; made by `caisson completion fish`.\n"
      "complete -c caisson -n __fish_use_subcommand -f -l version -d 'Show the version'\n";
  for (const Group& group : kGroups)
    out += "complete -c caisson -n __fish_use_subcommand -f -a " + std::string(group.word) +
           " -d " + single_quoted(group.summary) + "\n";
  for (const CommandTable* command : commands) {
    if (command->hidden) continue;
    std::string condition = "__fish_seen_subcommand_from " + std::string(command->name);
    if (const std::size_t space = command->name.find(' '); space != std::string_view::npos) {
      const std::string first(command->name.substr(0, space));
      const std::string second(command->name.substr(space + 1));
      out += "complete -c caisson -n '__fish_seen_subcommand_from " + first + "' -f -a " + second +
             " -d " + single_quoted(command->summary) + "\n";
      condition =
          "__fish_seen_subcommand_from " + first + "; and __fish_seen_subcommand_from " + second;
    } else {
      out += "complete -c caisson -n __fish_use_subcommand -f -a " + std::string(command->name) +
             " -d " + single_quoted(command->summary) + "\n";
    }
    if (command->complete != Complete::kNothing)
      out += "complete -c caisson -n '" + condition + "'" +
             fish_words(command->complete, command->words) + "\n";
    for (const OptionGroup& group : command->groups)
      for (const Option& option : group.options) {
        if (option.hidden) continue;
        out +=
            "complete -c caisson -n '" + condition + "' -l " + std::string(option.name.substr(2));
        if (option.letter != 0) out += std::string(" -s ") + option.letter;
        if (!option.value.empty()) out += " -r" + fish_words(option.complete, option.words);
        out += " -d " + single_quoted(option.help) + "\n";
      }
  }
  return out;
}

}  // namespace

std::string help_text(const CommandTable& command) {
  std::string out = "Usage: caisson " + std::string(command.name);
  if (!command.synopsis.empty()) (out += ' ') += command.synopsis;
  out += "\n\n" + wrapped(command.summary, 0, kWidth) + ".\n";
  each_paragraph(command.text, [&](std::string_view paragraph) {
    out += "\n" + wrapped(paragraph, 0, kWidth) + "\n";
  });
  for (const OptionGroup& group : command.groups) {
    (out += '\n') += group.title;
    out += ":\n";
    for (const Option& option : group.options) {
      if (option.hidden) continue;
      std::string head = "  " + option_head(option);
      if (head.size() + 2 > kHelpColumn) {
        head += '\n';
        head.append(kHelpColumn, ' ');
      } else {
        head.append(kHelpColumn - head.size(), ' ');
      }
      out += head + wrapped(option.help, kHelpColumn, kWidth) + "\n";
    }
  }
  if (!command.examples.empty()) {
    out += command.examples.size() == 1 ? "\nExample:\n" : "\nExamples:\n";
    for (const Example& example : command.examples) {
      (out += "  ") += example.line;
      (out += "\n      ") += wrapped(example.what, 6, kWidth);
      out += '\n';
    }
  }
  return out;
}

std::string overview_text(std::span<const CommandTable* const> commands) {
  std::string out =
      "Usage: caisson COMMAND [OPTIONS]\n\nRuns code that nobody can vouch for, in a sandbox that "
      "is gone when it ends.\n\nCommands:\n";
  for (const CommandTable* command : commands) {
    if (!command->hidden) list_command(out, *command);
  }
  out +=
      "\nOptions:\n  -h, --help      Show this text.\n      --version   Show the version.\n\n"
      "Example:\n  caisson run --ro . -- python3 script.py\n"
      "      run script.py; it can read this folder and touch nothing else\n\n"
      "'caisson COMMAND --help' says more about a command.\n";
  return out;
}

std::string group_text(std::string_view word, std::span<const CommandTable* const> commands) {
  const auto group = std::ranges::find(kGroups, word, &Group::word);
  if (group == kGroups.end()) return "";
  std::string out = "Usage: caisson " + std::string(word) + " COMMAND [OPTIONS]\n\n";
  out += std::string(group->summary) + ".\n\nCommands:\n";
  for (const CommandTable* command : commands)
    if (is_of(*command, word)) list_command(out, *command);
  return out + "\n'caisson " + std::string(word) + " COMMAND --help' says more about a command.\n";
}

std::string man_page(const CommandTable& command) {
  std::string out = man_head("caisson-" + dashed(command.name), command.summary);
  out += ".SH SYNOPSIS\n.B caisson " + roff(command.name) + "\n" + roff(command.synopsis) + "\n";
  out += ".SH DESCRIPTION\n";
  out += roff(command.summary) + ".\n";
  each_paragraph(command.text,
                 [&](std::string_view paragraph) { out += ".PP\n" + roff(paragraph) + "\n"; });
  man_options(out, command);
  man_examples(out, command);
  return out + ".SH SEE ALSO\n.BR caisson (1)\n";
}

std::string man_overview(std::span<const CommandTable* const> commands) {
  std::string out = man_head("caisson", "run code that nobody can vouch for");
  out +=
      ".SH SYNOPSIS\n.B caisson\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n"
      "Runs code that nobody can vouch for, in a sandbox that is gone when it ends.\n"
      ".SH COMMANDS\n";
  for (const CommandTable* command : commands) {
    if (command->hidden) continue;
    out += ".TP\n.B " + roff(command->name) + "\n" + roff(command->summary) +
           "; see \\fBcaisson\\-" + roff(dashed(command->name)) + "\\fR(1).\n";
  }
  out +=
      ".SH EXIT STATUS\n"
      "caisson run, shell and exec: the program's own; 128+n where signal n ended it; 124 time\n"
      "limit, 137 memory limit, 122 disk limit, 121 process limit, 120 output limit, 119\n"
      "forbidden system call, 130 cancelled, 125 an error of caisson's own, 126 a program that\n"
      "cannot be started, 127 a program that is not there. Other commands: 0, or 125.\n"
      ".SH ENVIRONMENT\n.TP\n.B CAISSON_STATE_DIR\nThe folder of images.\n"
      ".TP\n.B CAISSON_RUN_DIR\nThe folder of sandboxes that live now.\n";
  return out;
}

Result<std::string> completion_script(std::string_view shell,
                                      std::span<const CommandTable* const> commands) {
  if (shell == "bash") return bash_script(commands);
  if (shell == "zsh") return zsh_script() + bash_script(commands);
  if (shell == "fish") return fish_script(commands);
  return fail(Error::invalid("no completion for shell '" + std::string(shell) +
                             "'; there is one for bash, zsh and fish"));
}

}  // namespace caisson::cli
