#include "cli/commands.h"

#include <array>
#include <string>
#include <vector>

#include "box/registry.h"
#include "cli/messages.h"

namespace caisson::cli {
namespace {

constexpr std::array<CommandEntry, 28> kCommands = {{{&kRunTable, run_run},
                                                     {&kShellTable, run_shell},
                                                     {&kExecTable, run_exec},
                                                     {&kPsTable, run_ps},
                                                     {&kLogsTable, run_logs},
                                                     {&kKillTable, run_kill},
                                                     {&kPauseTable, run_pause},
                                                     {&kResumeTable, run_resume},
                                                     {&kCpTable, run_cp},
                                                     {&kImagePullTable, run_image_pull},
                                                     {&kImageImportTable, run_image_import},
                                                     {&kImageExportTable, run_image_export},
                                                     {&kImageBuildTable, run_image_build},
                                                     {&kImageLsTable, run_image_ls},
                                                     {&kImageInspectTable, run_image_inspect},
                                                     {&kImageTagTable, run_image_tag},
                                                     {&kImageRmTable, run_image_rm},
                                                     {&kImageGcTable, run_image_gc},
                                                     {&kKeyCreateTable, run_key_create},
                                                     {&kKeyLsTable, run_key_ls},
                                                     {&kKeyRmTable, run_key_rm},
                                                     {&kTeamCreateTable, run_team_create},
                                                     {&kTeamLsTable, run_team_ls},
                                                     {&kTeamSetTable, run_team_set},
                                                     {&kServeTable, run_serve},
                                                     {&kDoctorTable, run_doctor},
                                                     {&kCompletionTable, run_completion},
                                                     {&kManTable, run_man}}};

constexpr std::array<const CommandTable*, kCommands.size()> kTables = [] {
  std::array<const CommandTable*, kCommands.size()> tables = {};
  for (std::size_t i = 0; i < tables.size(); ++i) tables[i] = kCommands[i].table;
  return tables;
}();

// The words of "image import" that `arguments` begins with; 0: none of them or not all.
std::size_t words_matched(std::string_view name, std::span<char* const> arguments) {
  std::size_t words = 0;
  while (!name.empty()) {
    const std::string_view word = name.substr(0, name.find(' '));
    if (words == arguments.size() || word != arguments[words]) return 0;
    ++words;
    name.remove_prefix(word.size() < name.size() ? word.size() + 1 : name.size());
  }
  return words;
}

int unknown_command(std::span<char* const> arguments) {
  const std::string_view first = arguments[0];
  std::vector<std::string_view> names;
  std::string below;
  for (const CommandTable* table : kTables) {
    if (table->hidden) continue;
    if (table->name.starts_with(std::string(first) + " ")) {
      below += below.empty() ? "" : ", ";
      below += table->name.substr(first.size() + 1);
    }
    names.push_back(table->name);
  }
  if (!below.empty()) {
    say("'caisson " + std::string(first) + "' needs a command: " + below);
    return kExitOwnError;
  }
  const std::string_view close = similar(first, names);
  say("unknown command '" + std::string(first) + "'" +
      (close.empty() ? "; see 'caisson --help'" : "; did you mean '" + std::string(close) + "'?"));
  return kExitOwnError;
}

}  // namespace

std::span<const CommandEntry> all_commands() {
  return kCommands;
}
std::span<const CommandTable* const> all_tables() {
  return kTables;
}

int run_command_line(std::span<char* const> arguments) {
  if (arguments.empty()) {
    write_all(2, overview_text(kTables));
    return kExitOwnError;
  }
  const std::string_view first = arguments[0];
  if (first == "--version") {
    write_all(1, "caisson " CAISSON_VERSION "\n");
    return 0;
  }
  if (first == "--help" || first == "-h" || first == "help") {
    write_all(1, overview_text(kTables));
    return 0;
  }
  for (const CommandEntry& entry : kCommands) {
    const std::size_t words = words_matched(entry.table->name, arguments);
    if (words == 0) continue;
    auto parsed = parse_arguments(*entry.table, arguments.subspan(words));
    if (!parsed.has_value()) return say_error(parsed.error());
    if (parsed->help) {
      write_all(1, help_text(*entry.table));
      return 0;
    }
    // run and shell start a launcher, which sweeps by itself.
    if (entry.run != run_run && entry.run != run_shell && entry.run != run_completion &&
        entry.run != run_man)
      box::sweep_dead();
    return entry.run(*parsed);
  }
  return unknown_command(arguments);
}

}  // namespace caisson::cli
