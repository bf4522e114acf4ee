// The commands, one file each: a table for the text (cli/args.h) and a function that does it.
//
// A command's function gets its parsed arguments and returns the exit status. Errors that are ours
// are said with say_error() and give 125. Those that may act on a server get the host to act on.
#pragma once

#include <memory>
#include <span>

#include "cli/args.h"
#include "cli/host.h"

namespace caisson::cli {

inline constexpr int kExitOwnError = 125;
// Whoever read our output has had enough: 128 + SIGPIPE, as for a program that a closed pipe ends.
inline constexpr int kExitReaderGone = 141;

struct CommandEntry {
  const CommandTable* table;
  int (*run)(const Parsed& parsed) = nullptr;
  // In place of it: of commands that act on this host's sandboxes or on a server's.
  int (*run_on)(const Parsed& parsed, Host& host) = nullptr;
  // What dead sandboxes left is swept before. Not where a launcher is started, which does so.
  enum class Sweep : unsigned char { kNo, kBefore } sweep = Sweep::kBefore;
};

extern const CommandTable kRunTable, kShellTable, kExecTable, kPsTable, kLogsTable, kKillTable,
    kPauseTable, kResumeTable, kCpTable, kImagePullTable, kImageImportTable, kImageExportTable,
    kImageBuildTable, kImageLsTable, kImageInspectTable, kImageTagTable, kImageRmTable,
    kImageGcTable, kKeyCreateTable, kKeyLsTable, kKeyRmTable, kTeamCreateTable, kTeamLsTable,
    kTeamSetTable, kPolicyCheckTable, kPolicyExplainTable, kPolicyApplyTable, kSecretSetTable,
    kSecretLsTable, kSecretRmTable, kAuditTailTable, kAuditWhyTable, kAuditVerifyTable, kServeTable,
    kDoctorTable, kCompletionTable, kManTable;

int run_run(const Parsed& parsed, Host& host);
int run_shell(const Parsed& parsed, Host& host);
int run_exec(const Parsed& parsed, Host& host);
int run_ps(const Parsed& parsed, Host& host);
int run_logs(const Parsed& parsed, Host& host);
int run_kill(const Parsed& parsed, Host& host);
int run_pause(const Parsed& parsed, Host& host);
int run_resume(const Parsed& parsed, Host& host);
int run_cp(const Parsed& parsed, Host& host);
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
int run_policy_check(const Parsed& parsed);
int run_policy_explain(const Parsed& parsed);
int run_policy_apply(const Parsed& parsed, Host& host);
int run_secret_set(const Parsed& parsed, Host& host);
int run_secret_ls(const Parsed& parsed, Host& host);
int run_secret_rm(const Parsed& parsed, Host& host);
int run_audit_tail(const Parsed& parsed);
int run_audit_why(const Parsed& parsed);
int run_audit_verify(const Parsed& parsed);
int run_serve(const Parsed& parsed);
int run_doctor(const Parsed& parsed);
int run_completion(const Parsed& parsed);
int run_man(const Parsed& parsed);

// All of them, in the order of the help; and their tables alone.
std::span<const CommandEntry> all_commands();
std::span<const CommandTable* const> all_tables();

// Where a command acts; `arguments` as below.
using HostMaker = Result<std::unique_ptr<Host>> (*)(std::span<char* const> arguments,
                                                    const Parsed& parsed);
// This host; where a server is named, this process becomes caisson-remote.
Result<std::unique_ptr<Host>> local_host_or_remote(std::span<char* const> arguments,
                                                   const Parsed& parsed);

// `arguments` are those behind the program's name.
int run_command_line(std::span<char* const> arguments, HostMaker make_host);

}  // namespace caisson::cli
