// caisson audit tail, why, verify: what a gateway let through and refused, read from its file.
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/sys.h"
#include "cli/commands.h"
#include "cli/messages.h"
#include "egress/audit_file.h"
#include "egress/audit_keyring.h"
#include "egress/audit_verify.h"
#include "policy/host_name.h"
#include "policy/url_path.h"

namespace caisson::cli {
namespace {

using egress::AuditEntry;
using egress::AuditFinding;
using egress::AuditLines;
using egress::AuditVerifier;

// Of verify.
constexpr int kExitIncomplete = 1, kExitBroken = 2, kExitCut = 3;
constexpr int kExitNothingFound = 1;
constexpr std::size_t kMostTailed = 10'000;
constexpr std::size_t kMostExplained = 100;
constexpr int kLookEveryMs = 200;

constexpr std::array<Option, 3> kTailOptions = {{
    {.name = "--lines",
     .letter = 'n',
     .value = "COUNT",
     .help = "How many; 10000 at most. Default: 10."},
    {.name = "--follow",
     .letter = 'f',
     .help = "Go on as the file grows, also where it is put aside for a new one."},
    {.name = "--json", .help = "Print the lines as they are in the file."},
}};
constexpr std::array<OptionGroup, 1> kTailGroups = {{{"Options", kTailOptions}}};
constexpr std::array<Example, 1> kTailExamples = {
    {{"caisson audit tail -f net.jsonl", "watch what an agent reaches and does not"}}};

constexpr std::array<Example, 3> kWhyExamples = {
    {{"caisson audit why net.jsonl api.example.com", "say what was refused of a host, and why"},
     {"caisson audit why net.jsonl http://mirror.example.com/upload", "the same of a URL"},
     {"caisson audit why net.jsonl 12", "the same of the record with this number"}}};

constexpr std::array<Option, 3> kVerifyOptions = {{
    {.name = "--head",
     .value = "HASH",
     .help = "The hash that the last record must have, as it was kept elsewhere."},
    {.name = "--keys",
     .value = "FOLDER",
     .help = "Where the key is that the records were made with. Default: this user's own, "
             "STATE/audit."},
    {.name = "--json", .help = "Print one line of JSON."},
}};
constexpr std::array<OptionGroup, 1> kVerifyGroups = {{{"Options", kVerifyOptions}}};
constexpr std::array<Example, 2> kVerifyExamples = {
    {{"caisson audit verify net.jsonl", "say whether every record is there as it was written"},
     {"caisson audit verify net.jsonl.1 net.jsonl", "the same of a file and the one before it"}}};

Result<Fd> open_file(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.valid()) return fail_errno("the audit file '" + path + "'");
  struct stat info = {};
  if (::fstat(file.get(), &info) != 0) return fail_errno("the audit file '" + path + "'");
  if (!S_ISREG(info.st_mode))
    return fail(Error::invalid("the audit file '" + path + "': allowed is a regular file"));
  return file;
}

Status no_record(const std::string& path, std::uint64_t number, const Error& error) {
  return fail(Error::invalid(path + ", line " + std::to_string(number) + ": " + error.message() +
                             "; 'caisson audit verify' says more"));
}

// ---- tail ---------------------------------------------------------------------------------------

Result<std::size_t> lines_wanted(const Parsed& parsed) {
  std::size_t count = 10;
  const std::string text = parsed.value("--lines");
  if (!parsed.has("--lines")) return count;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || end != text.data() + text.size() || count > kMostTailed)
    return fail(
        Error::invalid("--lines: found '" + shown(text) + "'; allowed is a number to 10000"));
  return count;
}

// A line for the reader; what is no record is shown as such.
std::string tail_line(std::string_view line, bool as_json) {
  if (as_json) return std::string(line) + "\n";
  const auto entry = egress::parse_audit_line(line);
  if (!entry.has_value()) return "(no record: " + shown(line.substr(0, 80)) + ")\n";
  return egress::audit_sentence(*entry) + "\n";
}

bool was_cut(int file_fd) {
  struct stat info = {};
  return ::fstat(file_fd, &info) == 0 && info.st_size < ::lseek(file_fd, 0, SEEK_CUR);
}

// Prints what comes, until whoever reads has had enough.
Result<int> follow(const std::string& path, Fd file, AuditLines lines, bool as_json) {
  bool put_aside = false;
  for (;;) {
    AuditLines::Line line;
    TRY_ASSIGN(const bool more, lines.next(line));
    if (more && line.text.size() > egress::kMostAuditLine)
      return fail(Error::invalid(path + ": a line is too long for a record"));
    if (more && line.ended) {
      if (!write_all(1, tail_line(line.text, as_json))) return kExitReaderGone;
      continue;
    }
    if (was_cut(file.get())) return fail(Error::invalid(path + ": the file has become shorter"));
    if (put_aside) {
      // Everything of the old one was read after it was no longer written to.
      TRY_ASSIGN(file, open_file(path));
      lines = AuditLines(file.get());
      put_aside = false;
      continue;
    }
    put_aside = !sys::is_same_file(file.get(), path) && ::access(path.c_str(), F_OK) == 0;
    if (!put_aside) (void)::poll(nullptr, 0, kLookEveryMs);
  }
}

Result<int> tail(const Parsed& parsed) {
  if (parsed.arguments.size() != 1)
    return fail(Error::invalid("one file is needed; caisson audit tail FILE"));
  const std::string& path = parsed.arguments[0];
  const bool as_json = parsed.has("--json");
  TRY_ASSIGN(const std::size_t wanted, lines_wanted(parsed));
  TRY_ASSIGN(Fd file, open_file(path));
  AuditLines lines(file.get());
  std::deque<std::string> last;
  AuditLines::Line line;
  for (std::uint64_t number = 1;; ++number) {
    TRY_ASSIGN(const bool more, lines.next(line));
    if (!more || (!line.ended && line.text.size() <= egress::kMostAuditLine)) break;
    if (line.text.size() > egress::kMostAuditLine) {
      TRY(no_record(path, number, Error::invalid("it is too long for a record")));
    }
    last.emplace_back(line.text);
    if (last.size() > wanted) last.pop_front();
  }
  for (const std::string& text : last)
    if (!write_all(1, tail_line(text, as_json))) return kExitReaderGone;
  if (!parsed.has("--follow")) {
    if (line.text.empty() || line.ended) return 0;
    say("the file ends within a record");
    return 0;
  }
  return follow(path, std::move(file), std::move(lines), as_json);
}

// ---- why ----------------------------------------------------------------------------------------

// What is asked about: a record, a sandbox, or a host with perhaps a port and a path.
struct Asked {
  std::string word;
  std::uint64_t sequence = 0;
  std::string host;
  std::uint64_t port = 0;
  std::string path;

  bool is(const AuditEntry& entry) const {
    if (sequence != 0) return entry.sequence == sequence;
    if (entry.sandbox == word) return true;
    if (host.empty() || (entry.host != host && !entry.destination.starts_with(host + ":")))
      return false;
    return (port == 0 || entry.port == port) &&
           (path.empty() || entry.path.empty() || entry.path == path);
  }
};

Result<Asked> asked_of(const std::string& text) {
  constexpr std::string_view kAllowed =
      "a host with or without a port, https://HOST[:PORT], http://HOST[:PORT]/PATH, the number of "
      "a record, or the id of a sandbox";
  Asked asked{.word = text};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), asked.sequence);
  if (error == std::errc() && end == text.data() + text.size() && asked.sequence > 0) return asked;
  asked.sequence = 0;
  std::string_view rest = text;
  const std::size_t scheme = rest.find("://");
  if (scheme != rest.npos) {
    const std::string_view name = rest.substr(0, scheme);
    if (name != "https" && name != "http" && name != "tcp")
      return fail(
          Error::invalid("found '" + shown(text) + "'; allowed is " + std::string(kAllowed)));
    rest.remove_prefix(scheme + 3);
    if (name != "tcp") asked.port = name == "https" ? 443 : 80;
    const std::size_t slash = std::min(rest.find_first_of("/?"), rest.size());
    if (name == "http" && rest.substr(slash).starts_with('/')) {
      TRY_ASSIGN(const policy::Target target, policy::canonical_target(rest.substr(slash)));
      asked.path = target.path;
    }
    rest = rest.substr(0, slash);
  }
  auto authority = policy::canonical_authority(rest);
  if (!authority.has_value())
    return fail(Error::invalid("found '" + shown(text) + "'; allowed is " + std::string(kAllowed)));
  asked.host = authority->host.text();
  if (authority->port) asked.port = *authority->port;
  return asked;
}

// The same refusal, however often it came.
struct Refused {
  AuditEntry last;
  std::uint64_t times = 0;
};

bool is_same(const AuditEntry& one, const AuditEntry& other) {
  return one.target() == other.target() && one.reason == other.reason && one.rule == other.rule &&
         one.detail == other.detail && one.kind == other.kind;
}

std::string counted(std::uint64_t times) {
  return times == 1 ? "once" : std::to_string(times) + " times";
}

struct Answer {
  std::vector<Refused> refused;
  std::uint64_t left_out = 0, allowed = 0;
  AuditEntry last_allowed;

  void add(AuditEntry entry) {
    if (!entry.decides) return;
    if (entry.allowed) {
      ++allowed;
      last_allowed = std::move(entry);
      return;
    }
    for (Refused& known : refused) {
      if (!is_same(known.last, entry)) continue;
      ++known.times;
      known.last = std::move(entry);
      return;
    }
    if (refused.size() == kMostExplained) {
      ++left_out;
    } else {
      refused.push_back({std::move(entry), 1});
    }
  }
};

std::string answer_text(const Answer& answer, const std::string& asked) {
  std::string text;
  for (const Refused& refused : answer.refused)
    text += "refused " + counted(refused.times) + ", last in record " +
            egress::audit_sentence(refused.last) + "\n";
  if (answer.left_out > 0) text += "and " + std::to_string(answer.left_out) + " other refusals\n";
  if (answer.allowed > 0)
    text += "let through " + counted(answer.allowed) + ", last in record " +
            egress::audit_sentence(answer.last_allowed) + "\n";
  if (text.empty()) text = "there is no record of a decision about " + shown(asked) + "\n";
  return text;
}

Result<int> why(const Parsed& parsed) {
  if (parsed.arguments.size() != 2)
    return fail(
        Error::invalid("a file and what to look for are needed; caisson audit why FILE WHAT"));
  const std::string& path = parsed.arguments[0];
  TRY_ASSIGN(const Asked asked, asked_of(parsed.arguments[1]));
  TRY_ASSIGN(const Fd file, open_file(path));
  AuditLines lines(file.get());
  AuditLines::Line line;
  Answer answer;
  std::uint64_t skipped = 0;
  for (std::uint64_t number = 1;; ++number) {
    TRY_ASSIGN(const bool more, lines.next(line));
    if (!more) break;
    if (line.text.size() > egress::kMostAuditLine) {
      TRY(no_record(path, number, Error::invalid("it is too long for a record")));
    }
    auto entry = egress::parse_audit_line(line.text);
    if (!entry.has_value()) {
      ++skipped;
    } else if (asked.is(*entry)) {
      answer.add(std::move(*entry));
    }
    if (!line.ended) break;
  }
  write_all(1, answer_text(answer, asked.word));
  if (skipped > 0)
    say(std::to_string(skipped) +
        " lines are no records and were left out; 'caisson audit verify' says more");
  return answer.refused.empty() && answer.allowed == 0 ? kExitNothingFound : 0;
}

// ---- verify -------------------------------------------------------------------------------------

struct Verified {
  std::string path;
  AuditVerifier verifier;
};

// With whose keys; those of this user unless a folder is given.
Result<egress::AuditKeyring> keyring_of(const Parsed& parsed) {
  const std::string folder =
      parsed.has("--keys") ? parsed.value("--keys") : egress::AuditKeyring::usual_folder();
  auto keyring = egress::AuditKeyring::find(folder);
  if (!keyring.has_value())
    return fail(std::move(keyring).error().with(
        "without the key that the records were made with nothing can be proven (--keys says where "
        "it is)"));
  return keyring;
}

Result<AuditVerifier> verify_file(const std::string& path, const egress::AuditKeyring& keyring,
                                  std::optional<egress::AuditHead> after) {
  TRY_ASSIGN(const Fd file, open_file(path));
  const auto chain = egress::read_audit_chain(file.get());
  const std::string id = chain.value_or("");
  // Both before it is read: who ends meanwhile has written his last record.
  TRY_ASSIGN(const bool claimed, egress::is_audit_claimed(file.get()));
  egress::AuditHead known;
  if (!id.empty()) {
    TRY_ASSIGN(known, keyring.known(id));
  }
  if (::lseek(file.get(), 0, SEEK_SET) < 0) return fail_errno("the audit file '" + path + "'");
  AuditVerifier verifier(keyring.key_of(id), std::move(after), std::move(known));
  AuditLines lines(file.get());
  AuditLines::Line line;
  for (;;) {
    TRY_ASSIGN(const bool more, lines.next(line));
    if (!more) break;
    const auto ended = line.ended ? AuditVerifier::Ended::kYes : AuditVerifier::Ended::kNo;
    if (!verifier.feed(line.text, ended) || !line.ended) break;
  }
  verifier.finish(claimed ? AuditVerifier::StillWritten::kYes : AuditVerifier::StillWritten::kNo);
  return verifier;
}

struct Verdict {
  bool broken = false, cut = false, incomplete = false;
  std::uint64_t records = 0, sealed = 0;
  std::string text;
  json::Value findings = json::Value::array();

  void add(const Verified& file) {
    const AuditVerifier& verifier = file.verifier;
    records += verifier.records();
    const auto one = [&](std::string_view what, const AuditFinding& finding) {
      tell(what, file.path, finding);
    };
    for (const AuditFinding& finding : verifier.remarks()) one("remark", finding);
    for (const AuditFinding& finding : verifier.incomplete()) one("incomplete", finding);
    for (const AuditFinding& finding : verifier.cut()) one("cut", finding);
    if (verifier.broken()) one("broken", *verifier.broken());
    broken = broken || verifier.broken().has_value();
    cut = cut || !verifier.cut().empty();
    incomplete = incomplete || !verifier.incomplete().empty();
    sealed = std::max(sealed, verifier.sealed());
  }
  // As a line, and as a value.
  void tell(std::string_view what, const std::string& path, const AuditFinding& finding) {
    text += std::string(what) + ": " + shown(path);
    json::Value value = json::Value::object();
    value.set("file", path);
    if (finding.line != 0) {
      text += ", line " + std::to_string(finding.line);
      value.set("line", finding.line);
    }
    text += ": " + shown(finding.sentence) + "\n";
    findings.push(value.set("sentence", finding.sentence).set("what", what));
  }
  // The worst that was found.
  int status() const {
    if (broken) return kExitBroken;
    if (cut) return kExitCut;
    return incomplete ? kExitIncomplete : 0;
  }
};

Result<int> verify(const Parsed& parsed) {
  if (parsed.arguments.empty())
    return fail(Error::invalid("a file is needed; caisson audit verify FILE"));
  const std::string wanted = parsed.value("--head");
  if (parsed.has("--head") && !is_sha256(wanted))
    return fail(Error::invalid("--head: found '" + shown(wanted) +
                               "'; allowed is 64 lower-case hexadecimal digits"));
  TRY_ASSIGN(const egress::AuditKeyring keyring, keyring_of(parsed));
  Verdict verdict;
  std::optional<egress::AuditHead> head;
  for (const std::string& path : parsed.arguments) {
    TRY_ASSIGN(AuditVerifier verifier, verify_file(path, keyring, head));
    head = verifier.head();
    verdict.add({.path = path, .verifier = std::move(verifier)});
    if (verdict.broken) break;
  }
  if (!verdict.broken && parsed.has("--head") && head->hash != wanted) {
    verdict.broken = true;
    const AuditFinding finding{
        0, "the last record is not the one whose hash was given; its own is " + head->hash};
    verdict.tell("broken", parsed.arguments.back(), finding);
  }
  const bool whole = verdict.status() == 0;
  if (parsed.has("--json")) {
    json::Value line = json::Value::object();
    line.set("whole", whole).set("broken", verdict.broken).set("cut", verdict.cut);
    line.set("incomplete", verdict.incomplete).set("records", verdict.records);
    line.set("sealed", verdict.sealed).set("seq", head->sequence).set("head", head->hash);
    line.set("findings", std::move(verdict.findings));
    write_all(1, json::serialize(line) + "\n");
  } else {
    if (whole)
      verdict.text += "whole: " + std::to_string(verdict.records) +
                      " records, sealed as far as record " + std::to_string(verdict.sealed) +
                      ", head " + head->hash + "\n";
    write_all(1, verdict.text);
  }
  return verdict.status();
}

int status_of(const Result<int>& done) {
  return done.has_value() ? *done : say_error(done.error());
}

}  // namespace

constinit const CommandTable kAuditTailTable = {
    .name = "audit tail",
    .synopsis = "[OPTIONS] FILE",
    .summary = "Show the last records of an audit file",
    .text =
        "FILE is what caisson run --audit FILE appends to. A record is shown as a line: its "
        "number, when, the sandbox, what was decided about what, and why.",
    .groups = kTailGroups,
    .examples = kTailExamples,
    .complete = Complete::kFile};

constinit const CommandTable kAuditWhyTable = {
    .name = "audit why",
    .synopsis = "FILE HOST|URL|NUMBER|SANDBOX",
    .summary = "Say what was refused, and why",
    .text =
        "Looks for what an audit file says about a host, with or without a port, a URL, the "
        "record with a number, or a sandbox. What was refused several times for the same reason is "
        "said once. The reason comes with the rule that decided, or of a request with the "
        "nearest one; caisson policy explain says what another policy would do.\n\n"
        "The exit status is 0 where there was a decision about it and 1 where not.",
    .examples = kWhyExamples,
    .complete = Complete::kFile};

constinit const CommandTable kAuditVerifyTable = {
    .name = "audit verify",
    .synopsis = "[OPTIONS] FILE...",
    .summary = "Say whether an audit file is what was written to it",
    .text =
        "Looks whether each record stands on the one before it and was made with its chain's key, "
        "so that a line that was changed, removed, moved or added shows, and whether the file goes "
        "as far as the last record that is known. Several files are parts of one, oldest first: "
        "FILE.1, FILE.2, FILE. What is said begins with broken, cut (records at the end were "
        "there and are missing), incomplete (of a run without a closing record, as after a crash: "
        "it is whole as far as it goes) or remark.\n\n"
        "The key is this user's own, and so is what is known of each file's last record. Whoever "
        "has the key too cannot be proven wrong by it: keep the hash of the last record elsewhere "
        "(caisson run --json says it) and give it as --head.\n\n"
        "The exit status is 0 where everything is whole, 1 where something is incomplete, 2 where "
        "something is broken and 3 where an end was cut off.",
    .groups = kVerifyGroups,
    .examples = kVerifyExamples,
    .complete = Complete::kFile};

int run_audit_tail(const Parsed& parsed) {
  return status_of(tail(parsed));
}
int run_audit_why(const Parsed& parsed) {
  return status_of(why(parsed));
}
int run_audit_verify(const Parsed& parsed) {
  return status_of(verify(parsed));
}

}  // namespace caisson::cli
