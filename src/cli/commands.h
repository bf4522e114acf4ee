// The commands, one file each: a table for the text (cli/args.h) and a function that does it.
//
// A command's function gets its parsed arguments and returns the exit status. Errors that are ours
// are said with say_error() and give 125.
#pragma once

#include <span>

#include "cli/args.h"

namespace caisson::cli {

inline constexpr int kExitOwnError = 125;
// Whoever read our output has had enough: 128 + SIGPIPE, as for a program that a closed pipe ends.
inline constexpr int kExitReaderGone = 141;

struct CommandEntry {
  const CommandTable* table;
  int (*run)(const Parsed& parsed);
};

extern const CommandTable kRunTable, kShellTable, kExecTable, kPsTable, kLogsTable, kKillTable,
    kPauseTable, kResumeTable, kCpTable, kImagePullTable, kImageImportTable, kImageExportTable,
    kImageBuildTable, kImageLsTable, kImageInspectTable, kImageTagTable, kImageRmTable,
    kImageGcTable, kKeyCreateTable, kKeyLsTable, kKeyRmTable, kTeamCreateTable, kTeamLsTable,
    kTeamSetTable, kServeTable, kDoctorTable, kCompletionTable, kManTable;

int run_run(const Parsed& parsed);
int run_shell(const Parsed& parsed);
int run_exec(const Parsed& parsed);
int run_ps(const Parsed& parsed);
int run_logs(const Parsed& parsed);
int run_kill(const Parsed& parsed);
int run_pause(const Parsed& parsed);
int run_resume(const Parsed& parsed);
int run_cp(const Parsed& parsed);
int run_image_pull(const Parsed& parsed);
int run_image_import(const Parsed& parsed);
int run_image_export(const Parsed& parsed);
int run_image_build(const Parsed& parsed);
int run_image_ls(const Parsed& parsed);
int run_image_inspect(const Parsed& parsed);
int run_image_tag(const Parsed& parsed);
int run_image_rm(const Parsed& parsed);
int run_image_gc(const Parsed& parsed);
int run_key_create(const Parsed& parsed);
int run_key_ls(const Parsed& parsed);
int run_key_rm(const Parsed& parsed);
int run_team_create(const Parsed& parsed);
int run_team_ls(const Parsed& parsed);
int run_team_set(const Parsed& parsed);
int run_serve(const Parsed& parsed);
int run_doctor(const Parsed& parsed);
int run_completion(const Parsed& parsed);
int run_man(const Parsed& parsed);

// All of them, in the order of the help; and their tables alone.
std::span<const CommandEntry> all_commands();
std::span<const CommandTable* const> all_tables();

// `arguments` are those behind the program's name.
int run_command_line(std::span<char* const> arguments);

}  // namespace caisson::cli
