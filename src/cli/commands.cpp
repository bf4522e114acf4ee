#include "cli/commands.h"

#include <array>
#include <string>
#include <vector>

#include "box/registry.h"
#include "cli/messages.h"

namespace caisson::cli {
namespace {

using Sweep = CommandEntry::Sweep;

constexpr std::array<CommandEntry, 37> kCommands = {{
    {.table = &kRunTable, .run_on = run_run, .sweep = Sweep::kNo},
    {.table = &kShellTable, .run_on = run_shell, .sweep = Sweep::kNo},
    {.table = &kExecTable, .run_on = run_exec},
    {.table = &kPsTable, .run_on = run_ps},
    {.table = &kLogsTable, .run_on = run_logs},
    {.table = &kKillTable, .run_on = run_kill},
    {.table = &kPauseTable, .run_on = run_pause},
    {.table = &kResumeTable, .run_on = run_resume},
    {.table = &kCpTable, .run_on = run_cp},
    {.table = &kImagePullTable, .run = run_image_pull},
    {.table = &kImageImportTable, .run = run_image_import},
    {.table = &kImageExportTable, .run = run_image_export},
    {.table = &kImageBuildTable, .run = run_image_build},
    {.table = &kImageLsTable, .run = run_image_ls},
    {.table = &kImageInspectTable, .run = run_image_inspect},
    {.table = &kImageTagTable, .run = run_image_tag},
    {.table = &kImageRmTable, .run = run_image_rm},
    {.table = &kImageGcTable, .run = run_image_gc},
    {.table = &kKeyCreateTable, .run = run_key_create},
    {.table = &kKeyLsTable, .run = run_key_ls},
    {.table = &kKeyRmTable, .run = run_key_rm},
    {.table = &kTeamCreateTable, .run = run_team_create},
    {.table = &kTeamLsTable, .run = run_team_ls},
    {.table = &kTeamSetTable, .run = run_team_set},
    {.table = &kPolicyCheckTable, .run = run_policy_check, .sweep = Sweep::kNo},
    {.table = &kPolicyExplainTable, .run = run_policy_explain, .sweep = Sweep::kNo},
    {.table = &kPolicyApplyTable, .run_on = run_policy_apply},
    {.table = &kSecretSetTable, .run_on = run_secret_set},
    {.table = &kSecretLsTable, .run_on = run_secret_ls},
    {.table = &kSecretRmTable, .run_on = run_secret_rm},
    {.table = &kAuditTailTable, .run = run_audit_tail, .sweep = Sweep::kNo},
    {.table = &kAuditWhyTable, .run = run_audit_why, .sweep = Sweep::kNo},
    {.table = &kAuditVerifyTable, .run = run_audit_verify, .sweep = Sweep::kNo},
    {.table = &kServeTable, .run = run_serve},
    {.table = &kDoctorTable, .run = run_doctor},
    {.table = &kCompletionTable, .run = run_completion, .sweep = Sweep::kNo},
    {.table = &kManTable, .run = run_man, .sweep = Sweep::kNo},
}};

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

bool asks_for_help(std::string_view word) {
  return word == "--help" || word == "-h" || word == "help";
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

int run_command_line(std::span<char* const> arguments, HostMaker make_host) {
  if (arguments.empty()) {
    write_all(2, overview_text(kTables));
    return kExitOwnError;
  }
  const std::string_view first = arguments[0];
  if (first == "--version") {
    write_all(1, "caisson " CAISSON_VERSION "\n");
    return 0;
  }
  if (asks_for_help(first)) {
    write_all(1, overview_text(kTables));
    return 0;
  }
  if (const std::string group = group_text(first, kTables);
      !group.empty() && arguments.size() == 2 && asks_for_help(arguments[1])) {
    write_all(1, group);
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
    const bool sweeps = entry.sweep == Sweep::kBefore;
    if (entry.run_on == nullptr) {
      if (sweeps) box::sweep_dead();
      return entry.run(*parsed);
    }
    const auto host = make_host(arguments, *parsed);
    if (!host.has_value()) return say_error(host.error());
    if (sweeps) (*host)->sweep();
    return entry.run_on(*parsed, **host);
  }
  return unknown_command(arguments);
}

}  // namespace caisson::cli
