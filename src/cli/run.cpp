// caisson run: one command in a sandbox of its own.
#include <caisson/sandbox.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "base/verdict.h"
#include "box/result_json.h"
#include "cli/commands.h"
#include "cli/hint.h"
#include "cli/messages.h"
#include "cli/server_options.h"
#include "cli/spec_options.h"
#include "cli/terminal.h"
#include "egress/audit_file.h"
#include "policy/document.h"

namespace caisson::cli {
namespace {

constexpr std::array<Option, 9> kOwnOptions = {{
    {.name = "--entrypoint",
     .value = "PROGRAM",
     .help = "Run PROGRAM with the given arguments instead of the image's entrypoint and command; "
             "'' runs what is given alone."},
    {.name = "--detach",
     .letter = 'd',
     .help = "Leave it running and print its id; see caisson ps, logs, exec, cp and kill. It ends "
             "with the program."},
    {.name = "--interactive",
     .letter = 'i',
     .help = "Pass on input also from a terminal; from a "
             "pipe or file it always is."},
    {.name = "--json",
     .help = "Print one line of JSON instead of the output: verdict, usage, "
             "stdout, stderr, wall, held, network."},
    {.name = "--verdict-file",
     .value = "FILE",
     .help = "Write that line, without the output, to "
             "FILE beside a normal run.",
     .complete = Complete::kFile},
    {.name = "--audit",
     .value = "FILE",
     .help = "Append what --net let through and refused to FILE, a line of JSON each; see caisson "
             "audit.",
     .complete = Complete::kFile},
    {.name = "--print-spec",
     .help = "Print the spec that these options make, as YAML, and run "
             "nothing."},
    {.name = "--quiet", .letter = 'q', .help = "Say nothing about verdicts; exit statuses stay."},
    {.name = "--input",
     .value = "FILE",
     .help = "Read the program's input from FILE.",
     .complete = Complete::kFile},
}};
constexpr std::array<OptionGroup, 4> kGroups = {{{"What it may see and be", kAccessOptions},
                                                 {"Limits", kLimitOptions},
                                                 {"The run", kOwnOptions},
                                                 kServerGroup}};
constexpr std::array<Example, 5> kExamples = {{
    {"caisson run --ro . -- python3 script.py",
     "run a script that can read this folder and touch "
     "nothing else"},
    {"caisson run --json -- python3 -c 'print(6*7)'", "the result as one line of JSON"},
    {"caisson run --memory 64MiB --timeout 5s -- ./dev/untrusted", "with tighter limits"},
    {"caisson run --copy ./src:/home/user/src --out /home/user/report.html:./report.html -- make "
     "-C src report",
     "work on a copy, and bring one file back"},
    {"caisson run -d --timeout 1h -- python3 -m http.server",
     "leave it running for an hour at "
     "most"},
}};

// Where the program's own result goes besides its exit status.
struct Report {
  bool json = false;
  bool quiet = false;
  Fd verdict_file, audit_file;
};

int fail_run(const Error& error, const Report& report) {
  const std::string line = box::error_line(error) + "\n";
  if (report.json) write_all(1, line);
  if (report.verdict_file.valid()) write_all(report.verdict_file.get(), line);
  return say_error(error);
}

// /dev/null is no input worth a stream.
bool is_dev_null(int fd) {
  struct stat info = {};
  return ::fstat(fd, &info) == 0 && S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 3);
}

Result<Fd> open_input(const Parsed& parsed) {
  const std::string path = parsed.value("--input");
  if (path.empty()) return Fd();
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return fail_errno("--input '" + path + "'");
  return file;
}

int input_descriptor(const Parsed& parsed, const Fd& file) {
  if (file.valid()) return file.get();
  if (::fcntl(0, F_GETFD) < 0 || is_dev_null(0)) return -1;
  if (::isatty(0) == 1 && !parsed.has("--interactive")) return -1;
  return 0;
}

int run_detached(Host& host, const SandboxSpec& spec, const Command& command,
                 const Report& report) {
  auto created =
      host.create(spec, {.life = Life::kMainCommand, .audit_fd = report.audit_file.get()});
  if (!created.has_value()) return fail_run(created.error(), report);
  const std::unique_ptr<HostedSandbox> sandbox = std::move(*created);
  for (const std::string& remark : sandbox->notes()) note(remark);
  auto ended = sandbox->start(command);
  if (!ended.has_value()) {
    static_cast<void>(sandbox->end());
    return fail_run(ended.error(), report);
  }
  if (ended->has_value()) {
    // It could not be started, or was over at once; only the former is no success.
    const Outcome& outcome = **ended;
    if (outcome.verdict != Verdict::kExited || outcome.cause == "start") {
      say(box::verdict_sentence(outcome));
      static_cast<void>(sandbox->end());
      return exit_status(outcome);
    }
  }
  if (report.json) {
    write_all(1, json::serialize(host.shown(sandbox->info())) + "\n");
  } else {
    write_all(1, sandbox->info().id + "\n");
  }
  return 0;
}

// What a failed program did not reach: perhaps that is why.
std::vector<std::string> refused_targets(const policy::NetworkReport& report) {
  constexpr std::size_t kMostShown = 5;
  std::vector<std::string> lines;
  for (const auto& refusal : report.refusals) {
    if (lines.size() == kMostShown) break;
    std::string line = "the network gateway turned away " + refusal.target;
    if (refusal.count > 1) line += " " + std::to_string(refusal.count) + " times";
    line += ": " + refusal.reason;
    lines.push_back(std::move(line));
  }
  if (report.refusals.size() > kMostShown)
    lines.push_back("and " + std::to_string(report.refusals.size() - kMostShown) + " others");
  return lines;
}

// Brings the results home. A program that failed has seldom made them, so then it is a remark.
int fetch_results(HostedSandbox& sandbox, const Outcome& outcome, int status) {
  if (outcome.verdict == Verdict::kCancelled || outcome.verdict == Verdict::kSandboxError)
    return status;
  const auto fetched = sandbox.fetch_outputs();
  if (fetched.has_value()) return status;
  say(fetched.error().message());
  return status == 0 ? kExitOwnError : status;
}

int run_attached(Host& host, const SandboxSpec& spec, const Command& command,
                 const Report& report) {
  auto session = Session::create();
  if (!session.has_value()) return fail_run(session.error(), report);
  session->listen();
  auto created = host.create(
      spec, {.first_command = &command, .only_command = true, .audit_fd = report.audit_file.get()});
  if (!created.has_value()) return fail_run(created.error(), report);
  const std::unique_ptr<HostedSandbox> sandbox = std::move(*created);
  for (const std::string& remark : sandbox->notes()) note(remark);
  Output out(1, Escapes::kFilterOnTerminal), err(2, Escapes::kFilterOnTerminal);
  RunOptions options;
  options.control = &session->control();
  if (!report.json)
    options.on_output = [&](OutputChannel channel, std::string_view bytes) {
      return (channel == OutputChannel::kStdout ? out : err).write(bytes);
    };
  auto result = sandbox->run(command, options);
  if (!report.json) {
    out.finish();
    err.finish();
  }
  if (!result.has_value()) return fail_run(result.error(), report);
  int status = exit_status(result->outcome);
  if (!spec->outputs.empty()) status = fetch_results(*sandbox, result->outcome, status);
  const auto closed = sandbox->close();
  const box::ResultContext context = {.wall = sandbox->info().wall,
                                      .image = sandbox->info().image,
                                      .network = sandbox->network_report()};
  if (report.json) write_all(1, box::result_line(*result, context) + "\n");
  if (report.verdict_file.valid()) {
    box::ResultContext elsewhere = context;
    elsewhere.output = box::ResultContext::Output::kElsewhere;
    if (!write_all(report.verdict_file.get(), box::result_line(*result, elsewhere) + "\n"))
      say("--verdict-file could not be written");
  }
  // `| head` has had enough: end as a program does that writes to a closed pipe, without a word.
  if (out.reader_gone()) return kExitReaderGone;
  if (!report.quiet) {
    const std::string sentence = box::verdict_sentence(result->outcome);
    if (!sentence.empty()) say(sentence);
    if (sandbox->network_report() != nullptr && !sandbox->network_report()->complete)
      say("the network gateway ended early; from then on nothing was let through");
    if (status != 0 && sandbox->network_report() != nullptr)
      for (const std::string& line : refused_targets(*sandbox->network_report())) say(line);
    if (status != 0)
      if (const std::string hint = invisible_file_hint(spec.values(), host.grant_option());
          !hint.empty())
        say(hint);
  }
  if (!closed.has_value()) say(closed.error().message());
  return status;
}

Result<Fd> open_records(const std::string& path, std::uint64_t most) {
  TRY_ASSIGN(const egress::AuditKeyring keyring,
             egress::AuditKeyring::open(egress::AuditKeyring::usual_folder()));
  return egress::open_audit(path, keyring, most);
}

}  // namespace

constinit const CommandTable kRunTable = {
    .name = "run",
    .synopsis = "[OPTIONS] [--] [PROGRAM] [ARGUMENT...]",
    .summary = "Run a program in a sandbox that is gone when it ends",
    .text =
        "The program sees the image's files and what the options grant it; it has no network but "
        "what "
        "--net opens, no variable of yours, and every limit is on. Its exit status becomes that of "
        "caisson.\n\n"
        "Without PROGRAM the image's entrypoint and command run; a PROGRAM that is given takes the "
        "command's place, after the entrypoint.\n\n"
        "Where a limit made it fail, the status says which one: 124 time, 137 memory, 122 disk, "
        "121 processes, 120 output; 119 stands for a forbidden system call or the misuse of a "
        "secret, 130 for cancelled "
        "(Ctrl-C), 125 for an error of caisson's own, 126 and 127 for a program that cannot be "
        "started or is not there, 128+n for signal n.",
    .groups = kGroups,
    .examples = kExamples,
    .trailing = true,
    .complete = Complete::kFile};

int run_run(const Parsed& parsed, Host& host) {
  Report report;
  report.json = parsed.has("--json");
  report.quiet = parsed.has("--quiet");
  if (const std::string path = parsed.value("--verdict-file"); !path.empty()) {
    report.verdict_file = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!report.verdict_file.valid())
      return fail_run(Error::syscall("--verdict-file '" + path + "'", errno), report);
  }
  const bool prints = parsed.has("--print-spec");
  // What every sandbox needs is claimed while the options are looked at.
  if (!prints) host.begin();
  auto spec = spec_from(parsed, {});
  if (!spec.has_value()) return fail_run(spec.error(), report);
  if (prints) {
    write_all(1, policy::print_spec(*spec, policy::Format::kYaml));
    return 0;
  }
  if (const std::string path = parsed.value("--audit"); !path.empty()) {
    if (!(*spec)->network.has_value())
      return fail_run(Error::invalid("--audit: there is nothing to record without --net"), report);
    auto file = open_records(path, (*spec)->network->audit.segment);
    if (!file.has_value())
      return fail_run(std::move(file).error().with("--audit '" + path + "'"), report);
    report.audit_file = std::move(*file);
  }
  auto input = open_input(parsed);
  if (!input.has_value()) return fail_run(input.error(), report);
  Command command;
  command.arguments = (*spec)->command;
  command.from_image = true;
  if (!parsed.has("--detach")) {
    command.input_fd = input_descriptor(parsed, *input);
    return run_attached(host, *spec, command, report);
  }
  if (!(*spec)->outputs.empty())
    return fail_run(Error::invalid("--out and --detach: results are fetched when a command ends, "
                                   "and nobody waits for this one; use 'caisson cp'"),
                    report);
  return run_detached(host, *spec, command, report);
}

}  // namespace caisson::cli
