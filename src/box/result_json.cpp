#include "box/result_json.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/encoding.h"

namespace caisson::box {
namespace {

// In Life's order.
constexpr std::array<std::string_view, kLives> kLifeNames = {"owner", "main_command", "kept"};

std::string signal_name(std::uint32_t signal) {
  const char* name = ::sigabbrev_np(static_cast<int>(signal));
  return name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal);
}

void put_output(json::Value& object, std::string_view key, std::string_view bytes, bool cut) {
  if (cut) bytes = without_partial_character(bytes);
  if (is_utf8(bytes)) {
    object.set(key, bytes);
    return;
  }
  object.set(key, base64_encode(bytes));
  object.set(std::string(key) + "_encoding", "base64");
}

json::Value verdict_value(const Outcome& outcome) {
  json::Value verdict = json::Value::object();
  verdict.set("kind", to_string(outcome.verdict));
  if (outcome.verdict == Verdict::kExited) verdict.set("code", outcome.exit_code);
  if (outcome.verdict == Verdict::kSignaled) {
    verdict.set("signal", outcome.signal);
    verdict.set("name", signal_name(outcome.signal));
    if (outcome.core_dumped) verdict.set("core_dumped", true);
  }
  if (!outcome.cause.empty()) verdict.set("cause", outcome.cause);
  const std::string sentence = verdict_sentence(outcome);
  if (!sentence.empty()) verdict.set("message", sentence);
  return verdict;
}

}  // namespace

std::string_view without_partial_character(std::string_view bytes) {
  const std::size_t whole = utf8_prefix(bytes);
  const std::string_view rest = bytes.substr(whole);
  if (rest.empty() || rest.size() > 3) return bytes;
  const auto first = static_cast<unsigned char>(rest[0]);
  const std::size_t needs = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 1;
  // Completed with the lowest and the highest byte that may follow, one of them must be a
  // character.
  for (const char filler : {'\x80', '\xbf'}) {
    std::string completed(rest);
    if (completed.size() < needs) completed.append(needs - completed.size(), filler);
    if (rest.size() < needs && is_utf8(completed)) return bytes.substr(0, whole);
  }
  return bytes;
}

json::Value refusals_value(std::span<const Refusal> refusals) {
  json::Value value = json::Value::array();
  for (const Refusal& refusal : refusals) {
    json::Value entry = json::Value::object();
    entry.set("syscall", refusal.syscall);
    entry.set("what", refusal.what);
    entry.set("count", refusal.count);
    value.push(std::move(entry));
  }
  return value;
}

std::string result_line(const RunResult& result, const ResultContext& context) {
  return json::serialize(result_value(result, context));
}

json::Value network_value(const policy::NetworkReport& report) {
  json::Value value = json::Value::object();
  value.set("complete", report.complete);
  value.set("connections", report.connections).set("bytes_up", report.bytes_up);
  value.set("bytes_down", report.bytes_down).set("refused", report.refused);
  json::Value refusals = json::Value::array();
  for (const policy::NetworkReport::Refusal& refusal : report.refusals) {
    json::Value entry = json::Value::object();
    entry.set("target", refusal.target).set("reason", refusal.reason).set("count", refusal.count);
    refusals.push(std::move(entry));
  }
  value.set("refusals", std::move(refusals));
  if (report.audit_sequence > 0) {
    json::Value audit = json::Value::object();
    audit.set("seq", report.audit_sequence).set("hash", report.audit_hash);
    value.set("audit", std::move(audit));
  }
  return value;
}

json::Value result_value(const RunResult& result, const ResultContext& context) {
  const Outcome& outcome = result.outcome;
  json::Value line = json::Value::object();
  line.set("verdict", verdict_value(outcome));
  json::Value usage = json::Value::object();
  usage.set("elapsed_us", outcome.usage.elapsed_us);
  usage.set("user_us", outcome.usage.user_us);
  usage.set("system_us", outcome.usage.system_us);
  usage.set("memory_peak", outcome.usage.memory_peak);
  usage.set("bytes_written", outcome.usage.bytes_written);
  usage.set("pids_peak", outcome.usage.pids_peak);
  usage.set("bytes_out", outcome.usage.bytes_out);
  usage.set("io_read_bytes", outcome.usage.io_read_bytes);
  usage.set("io_write_bytes", outcome.usage.io_write_bytes);
  line.set("usage", std::move(usage));
  json::Value hit = json::Value::array();
  for (const Limit limit : outcome.limits_hit) hit.push(to_string(limit));
  line.set("limits_hit", std::move(hit));
  line.set("refusals", refusals_value(outcome.refusals));
  if (context.output == ResultContext::Output::kShown) {
    const bool cut =
        std::ranges::find(outcome.limits_hit, Limit::kOutput) != outcome.limits_hit.end() ||
        outcome.verdict == Verdict::kOutputLimit;
    put_output(line, "stdout", result.standard_output, cut);
    put_output(line, "stderr", result.standard_error, cut);
  }
  line.set("wall", context.wall);
  line.set("image", context.image);
  json::Value held = json::Value::object();
  for (std::size_t i = 0; i < kLimits; ++i)
    held.set(to_string(static_cast<Limit>(i)), to_string(outcome.held[i]));
  line.set("held", std::move(held));
  if (context.network != nullptr) line.set("network", network_value(*context.network));
  return line;
}

std::string error_line(const Error& error) {
  json::Value verdict = json::Value::object();
  verdict.set("kind", to_string(Verdict::kSandboxError));
  verdict.set("cause", to_string(error.code()));
  verdict.set("message", error.message());
  json::Value line = json::Value::object();
  line.set("verdict", std::move(verdict));
  return json::serialize(line);
}

json::Value info_value(const SandboxInfo& info) {
  json::Value value = json::Value::object();
  value.set("id", info.id);
  value.set("wall", info.wall);
  value.set("image", info.image);
  value.set("image_id", info.image_id);
  json::Value command = json::Value::array();
  for (const std::string& argument : info.command) command.push(argument);
  value.set("command", std::move(command));
  value.set("created_ms", info.created_ms);
  if (info.inspects) value.set("inspects", true);
  value.set("deadline_ms",
            info.deadline_ms.has_value() ? json::Value(*info.deadline_ms) : json::Value(nullptr));
  value.set("paused", info.paused);
  value.set("detached", info.life != Life::kOwner);
  value.set("life", kLifeNames[static_cast<std::size_t>(info.life)]);
  value.set("owner_uid", info.owner_uid);
  value.set("user", info.user);
  value.set("uid", info.uid);
  value.set("gid", info.gid);
  json::Value ports = json::Value::array();
  for (const std::string& port : info.exposed_ports) ports.push(port);
  value.set("exposed_ports", std::move(ports));
  return value;
}

std::string info_text(const SandboxInfo& info, std::size_t limit) {
  std::string text = json::serialize(info_value(info));
  SandboxInfo shorter = info;
  for (std::size_t most = 1024; text.size() > limit && most > 0; most /= 2) {
    if (shorter.command.size() > 32) shorter.command.resize(32);
    for (std::string& argument : shorter.command)
      if (argument.size() > most) argument.resize(most);
    text = json::serialize(info_value(shorter));
  }
  return text;
}

Result<SandboxInfo> parse_info(std::string_view text) {
  TRY_ASSIGN(const json::Value value, json::parse(text));
  SandboxInfo info;
  const auto missing = [](std::string_view key) {
    return fail(Error(Code::kDataLoss, "a sandbox's info lacks \"" + std::string(key) + "\""));
  };
  for (const auto& [key, into] : {std::pair{std::string_view("id"), &info.id},
                                  {"wall", &info.wall},
                                  {"image", &info.image},
                                  {"user", &info.user}}) {
    const json::Value* found = value.find(key);
    if (found == nullptr || found->as_string() == nullptr) return missing(key);
    *into = *found->as_string();
  }
  // Sandboxes of an earlier version have none.
  if (const json::Value* id = value.find("image_id"); id != nullptr && id->as_string() != nullptr)
    info.image_id = *id->as_string();
  const json::Value* command = value.find("command");
  if (command == nullptr || command->as_array() == nullptr) return missing("command");
  for (const json::Value& argument : *command->as_array())
    if (const std::string* word = argument.as_string()) info.command.push_back(*word);
  if (const json::Value* ports = value.find("exposed_ports");
      ports != nullptr && ports->as_array() != nullptr) {
    for (const json::Value& port : *ports->as_array())
      if (const std::string* number = port.as_string()) info.exposed_ports.push_back(*number);
  }
  const json::Value* inspects = value.find("inspects");
  info.inspects = inspects != nullptr && inspects->as_bool() != nullptr && *inspects->as_bool();
  const json::Value* created = value.find("created_ms");
  if (created == nullptr || created->as_integer() == nullptr) return missing("created_ms");
  info.created_ms = *created->as_integer();
  if (const json::Value* deadline = value.find("deadline_ms");
      deadline != nullptr && deadline->as_integer() != nullptr)
    info.deadline_ms = *deadline->as_integer();
  const json::Value* life = value.find("life");
  if (life == nullptr || life->as_string() == nullptr) return missing("life");
  const auto name = std::ranges::find(kLifeNames, *life->as_string());
  if (name == kLifeNames.end()) return missing("life");
  info.life = static_cast<Life>(name - kLifeNames.begin());
  for (const auto& [key, into] : {std::pair{std::string_view("owner_uid"), &info.owner_uid},
                                  {"uid", &info.uid},
                                  {"gid", &info.gid}}) {
    const json::Value* found = value.find(key);
    if (found == nullptr || found->as_integer() == nullptr ||
        !std::in_range<std::uint32_t>(*found->as_integer()))
      return missing(key);
    *into = static_cast<std::uint32_t>(*found->as_integer());
  }
  return info;
}

namespace {

Error no_result(std::string_view key) {
  return Error(Code::kDataLoss, "a result's \"" + std::string(key) + "\" is missing or wrong");
}

Result<std::uint64_t> number_of(const json::Value& object, std::string_view key) {
  const json::Value* found = object.find(key);
  if (found != nullptr && found->as_integer() != nullptr && *found->as_integer() >= 0)
    return static_cast<std::uint64_t>(*found->as_integer());
  if (found != nullptr && found->as_unsigned() != nullptr) return *found->as_unsigned();
  return fail(no_result(key));
}

Result<std::uint32_t> small_number_of(const json::Value& object, std::string_view key) {
  TRY_ASSIGN(const std::uint64_t number, number_of(object, key));
  if (!std::in_range<std::uint32_t>(number)) return fail(no_result(key));
  return static_cast<std::uint32_t>(number);
}

std::string text_or_empty(const json::Value& object, std::string_view key) {
  const json::Value* found = object.find(key);
  return found != nullptr && found->as_string() != nullptr ? *found->as_string() : "";
}

// The enumerator of that name; `count`: how many there are.
template <typename Enum>
Result<Enum> named(std::string_view text, std::size_t count, std::string_view key) {
  for (std::size_t at = 0; at < count; ++at)
    if (to_string(static_cast<Enum>(at)) == text) return static_cast<Enum>(at);
  return fail(no_result(key));
}

Result<const json::Value*> part_of(const json::Value& object, std::string_view key) {
  const json::Value* found = object.find(key);
  if (found == nullptr) return fail(no_result(key));
  return found;
}

Status read_verdict(const json::Value& verdict, Outcome& outcome) {
  TRY_ASSIGN(outcome.verdict,
             named<Verdict>(text_or_empty(verdict, "kind"), kVerdictCount, "kind"));
  if (outcome.verdict == Verdict::kExited) {
    TRY_ASSIGN(outcome.exit_code, small_number_of(verdict, "code"));
  }
  if (outcome.verdict == Verdict::kSignaled) {
    TRY_ASSIGN(outcome.signal, small_number_of(verdict, "signal"));
  }
  const json::Value* dumped = verdict.find("core_dumped");
  outcome.core_dumped = dumped != nullptr && dumped->as_bool() != nullptr && *dumped->as_bool();
  outcome.cause = text_or_empty(verdict, "cause");
  // Where nobody gave a sentence, the one of the verdict's kind stands there; it is made anew.
  if (const std::string text = text_or_empty(verdict, "message"); text != verdict_sentence(outcome))
    outcome.detail = text;
  return {};
}

}  // namespace

Result<Outcome> outcome_of(const json::Value& result) {
  Outcome outcome;
  TRY_ASSIGN(const json::Value* const verdict, part_of(result, "verdict"));
  TRY(read_verdict(*verdict, outcome));
  TRY_ASSIGN(const json::Value* const usage, part_of(result, "usage"));
  for (const auto& [key, into] : {std::pair{"elapsed_us", &ExecUsage::elapsed_us},
                                  {"user_us", &ExecUsage::user_us},
                                  {"system_us", &ExecUsage::system_us},
                                  {"memory_peak", &ExecUsage::memory_peak},
                                  {"bytes_written", &ExecUsage::bytes_written},
                                  {"pids_peak", &ExecUsage::pids_peak},
                                  {"bytes_out", &ExecUsage::bytes_out},
                                  {"io_read_bytes", &ExecUsage::io_read_bytes},
                                  {"io_write_bytes", &ExecUsage::io_write_bytes}}) {
    TRY_ASSIGN(outcome.usage.*into, number_of(*usage, key));
  }
  TRY_ASSIGN(const json::Value* const hit, part_of(result, "limits_hit"));
  TRY_ASSIGN(const json::Value* const refusals, part_of(result, "refusals"));
  TRY_ASSIGN(const json::Value* const held, part_of(result, "held"));
  if (hit->as_array() == nullptr || refusals->as_array() == nullptr)
    return fail(no_result("limits_hit"));
  for (const json::Value& limit : *hit->as_array()) {
    const std::string* name = limit.as_string();
    TRY_ASSIGN(const Limit one, named<Limit>(name == nullptr ? "" : *name, kLimits, "limits_hit"));
    outcome.limits_hit.push_back(one);
  }
  for (const json::Value& entry : *refusals->as_array()) {
    Refusal refusal{.what = text_or_empty(entry, "what")};
    TRY_ASSIGN(refusal.syscall, small_number_of(entry, "syscall"));
    TRY_ASSIGN(refusal.count, small_number_of(entry, "count"));
    outcome.refusals.push_back(std::move(refusal));
  }
  for (std::size_t at = 0; at < kLimits; ++at) {
    const std::string_view limit = to_string(static_cast<Limit>(at));
    TRY_ASSIGN(outcome.held[at], named<HeldBy>(text_or_empty(*held, limit), kHeldKinds, limit));
  }
  return outcome;
}

std::string verdict_sentence(const Outcome& outcome) {
  if (!outcome.detail.empty()) return outcome.detail;
  switch (outcome.verdict) {
    case Verdict::kExited:
      return "";
    case Verdict::kSignaled:
      return "ended by " + signal_name(outcome.signal);
    case Verdict::kTimeLimit:
      return outcome.cause == "cpu" ? "ended: its processor time is used up (--cpu-time)"
                                    : "ended: its time is over (--timeout)";
    case Verdict::kMemoryLimit:
      return "failed: it needed more memory than it may use (--memory)";
    case Verdict::kProcessLimit:
      return "failed: it needed more processes than it may have (--pids)";
    case Verdict::kDiskLimit:
      return outcome.cause == "inodes"
                 ? "failed: it needed more files than its disk may hold (--inodes)"
                 : "failed: it needed more disk than it may use (--disk)";
    case Verdict::kOutputLimit:
      return "ended: it wrote more output than it may (--output)";
    case Verdict::kPolicyViolation:
      if (outcome.cause == "secret") return "ended: it misused a secret (on_violation: terminate)";
      return "ended: it made a system call that is refused (--on-refusal kill)";
    case Verdict::kCancelled:
      return "cancelled";
    case Verdict::kSandboxError:
      return "the sandbox failed";
  }
  return "";
}

}  // namespace caisson::box
