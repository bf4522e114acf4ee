#include "base/verdict.h"

#include <cerrno>

namespace caisson {
namespace {

constexpr std::array<std::string_view, kVerdictCount> kVerdictNames = {
    "exited",     "signaled",     "time_limit",       "memory_limit", "process_limit",
    "disk_limit", "output_limit", "policy_violation", "cancelled",    "sandbox_error"};
constexpr std::array<std::string_view, kLimits> kLimitNames = {
    "cpus",    "memory",   "pids",    "disk",     "inodes",      "open_files",  "output",
    "timeout", "cpu_time", "io_read", "io_write", "io_read_ops", "io_write_ops"};
constexpr std::array<std::string_view, kHeldKinds> kHeldNames = {"none", "watched", "rlimit",
                                                                 "cgroup", "partly"};
constexpr std::size_t kUsageBytes = 9 * 8;

void append_number(std::string& out, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

std::uint64_t number_at(std::string_view bytes, std::size_t offset, std::size_t count) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < count; ++i)
    value |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[offset + i])) << (8 * i);
  return value;
}

Error bad(std::string_view what) {
  return Error(Code::kDataLoss, "verdict: " + std::string(what));
}

Result<std::uint32_t> bounded(const proto::FieldReader& reader, proto::Tag tag, std::uint64_t most,
                              std::string_view name) {
  const auto value = reader.number_or_none(tag);
  if (!value.has_value()) return fail(bad(std::string(name) + " is missing"));
  if (*value > most)
    return fail(bad(std::string(name) + " is " + std::to_string(*value) + ", more than " +
                    std::to_string(most)));
  return static_cast<std::uint32_t>(*value);
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  return kVerdictNames.at(static_cast<std::size_t>(verdict));
}

std::string_view to_string(Limit limit) {
  return kLimitNames.at(static_cast<std::size_t>(limit));
}

std::string_view to_string(HeldBy held) {
  return kHeldNames.at(static_cast<std::size_t>(held));
}

std::string encode_refusals(std::span<const Refusal> refusals) {
  proto::Fields fields;
  std::size_t kept = 0;
  for (const Refusal& refusal : refusals) {
    if (++kept > kMaxRefusals) break;
    std::string value;
    append_number(value, refusal.syscall, 4);
    append_number(value, refusal.count, 4);
    value += std::string_view(refusal.what).substr(0, kMaxVerdictCause);
    fields.put(proto::Tag::kRefusal, value);
  }
  return fields.bytes();
}

Result<std::vector<Refusal>> decode_refusals(const proto::FieldReader& fields) {
  std::vector<Refusal> refusals;
  for (const std::string_view value : fields.all(proto::Tag::kRefusal)) {
    if (value.size() < 8 || value.size() > 8 + kMaxVerdictCause)
      return fail(bad("a refusal has a wrong size"));
    if (refusals.size() == kMaxRefusals) return fail(bad("too many refusals"));
    refusals.push_back({.syscall = static_cast<std::uint32_t>(number_at(value, 0, 4)),
                        .count = static_cast<std::uint32_t>(number_at(value, 4, 4)),
                        .what = std::string(value.substr(8))});
  }
  return refusals;
}

Result<std::array<HeldBy, kLimits>> decode_held(const proto::FieldReader& fields) {
  TRY_ASSIGN(const std::string_view bytes, fields.text(proto::Tag::kHeld));
  if (bytes.size() < kLimits) return fail(bad("the list of held limits is too short"));
  std::array<HeldBy, kLimits> held{};
  for (std::size_t i = 0; i < kLimits; ++i) {
    const auto by = static_cast<std::uint8_t>(bytes[i]);
    if (by >= kHeldNames.size()) return fail(bad("a limit is held by an unknown means"));
    held[i] = static_cast<HeldBy>(by);
  }
  return held;
}

std::string encode_outcome(const Outcome& outcome) {
  proto::Fields fields;
  fields.put_u8(proto::Tag::kVerdict, static_cast<std::uint8_t>(outcome.verdict));
  if (outcome.verdict == Verdict::kExited || outcome.exit_code != 0)
    fields.put_u32(proto::Tag::kExitCode, outcome.exit_code);
  if (outcome.verdict == Verdict::kSignaled || outcome.signal != 0)
    fields.put_u32(proto::Tag::kExitSignal, outcome.signal);
  if (outcome.core_dumped) fields.put_u8(proto::Tag::kCoreDumped, 1);
  if (!outcome.cause.empty())
    fields.put(proto::Tag::kVerdictCause,
               std::string_view(outcome.cause).substr(0, kMaxVerdictCause));
  if (!outcome.detail.empty())
    fields.put(proto::Tag::kVerdictDetail,
               std::string_view(outcome.detail).substr(0, kMaxVerdictDetail));
  std::string usage;
  for (const std::uint64_t value :
       {outcome.usage.elapsed_us, outcome.usage.user_us, outcome.usage.system_us,
        outcome.usage.memory_peak, outcome.usage.bytes_written, outcome.usage.pids_peak,
        outcome.usage.bytes_out, outcome.usage.io_read_bytes, outcome.usage.io_write_bytes})
    append_number(usage, value, 8);
  fields.put(proto::Tag::kUsage, usage);
  std::string held;
  for (const HeldBy by : outcome.held) held += static_cast<char>(by);
  fields.put(proto::Tag::kHeld, held);
  for (const Limit limit : outcome.limits_hit)
    fields.put_u8(proto::Tag::kLimitHit, static_cast<std::uint8_t>(limit));
  return fields.bytes() + encode_refusals(outcome.refusals);
}

Result<Outcome> decode_outcome(std::string_view payload) {
  TRY_ASSIGN(const proto::FieldReader reader, proto::FieldReader::parse(payload));
  Outcome outcome;
  TRY_ASSIGN(const std::uint32_t verdict,
             bounded(reader, proto::Tag::kVerdict, kVerdictCount - 1, "kind"));
  outcome.verdict = static_cast<Verdict>(verdict);
  if (outcome.verdict == Verdict::kExited || reader.has(proto::Tag::kExitCode)) {
    TRY_ASSIGN(outcome.exit_code, bounded(reader, proto::Tag::kExitCode, 255, "exit code"));
  }
  if (outcome.verdict == Verdict::kSignaled || reader.has(proto::Tag::kExitSignal)) {
    TRY_ASSIGN(outcome.signal, bounded(reader, proto::Tag::kExitSignal, 64, "signal"));
  }
  outcome.core_dumped = reader.number_or_none(proto::Tag::kCoreDumped).value_or(0) != 0;
  if (reader.has(proto::Tag::kVerdictCause)) {
    TRY_ASSIGN(const std::string_view cause, reader.text(proto::Tag::kVerdictCause));
    outcome.cause = cause.substr(0, kMaxVerdictCause);
  }
  if (reader.has(proto::Tag::kVerdictDetail)) {
    TRY_ASSIGN(const std::string_view detail, reader.text(proto::Tag::kVerdictDetail));
    outcome.detail = detail.substr(0, kMaxVerdictDetail);
  }
  TRY_ASSIGN(const std::string_view usage, reader.text(proto::Tag::kUsage));
  if (usage.size() < kUsageBytes) return fail(bad("usage is too short"));
  ExecUsage& used = outcome.usage;
  std::size_t offset = 0;
  for (std::uint64_t* field :
       {&used.elapsed_us, &used.user_us, &used.system_us, &used.memory_peak, &used.bytes_written,
        &used.pids_peak, &used.bytes_out, &used.io_read_bytes, &used.io_write_bytes}) {
    *field = number_at(usage, offset, 8);
    offset += 8;
  }
  TRY_ASSIGN(outcome.held, decode_held(reader));
  for (const std::string_view value : reader.all(proto::Tag::kLimitHit)) {
    if (value.size() != 1 || static_cast<std::uint8_t>(value[0]) >= kLimits)
      return fail(bad("an unknown limit was hit"));
    const auto limit = static_cast<Limit>(value[0]);
    for (const Limit seen : outcome.limits_hit)
      if (seen == limit) return fail(bad("a limit is listed twice"));
    outcome.limits_hit.push_back(limit);
  }
  TRY_ASSIGN(outcome.refusals, decode_refusals(reader));
  return outcome;
}

Outcome outcome_not_started(int error_number, std::string_view message) {
  Outcome outcome;
  outcome.verdict = Verdict::kExited;
  outcome.exit_code = error_number == ENOENT || error_number == ENOTDIR ? 127 : 126;
  outcome.cause = "start";
  outcome.detail = message;
  return outcome;
}

int exit_status(const Outcome& outcome) {
  switch (outcome.verdict) {
    case Verdict::kExited:
      return static_cast<int>(outcome.exit_code);
    case Verdict::kSignaled:
      return 128 + static_cast<int>(outcome.signal);
    case Verdict::kTimeLimit:
      return 124;
    case Verdict::kMemoryLimit:
      return 137;
    case Verdict::kProcessLimit:
      return 121;
    case Verdict::kDiskLimit:
      return 122;
    case Verdict::kOutputLimit:
      return 120;
    case Verdict::kPolicyViolation:
      return 119;
    case Verdict::kCancelled:
      return 130;
    case Verdict::kSandboxError:
      return 125;
  }
  return 125;
}

}  // namespace caisson
