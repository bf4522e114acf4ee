// The verdict of one command as it travels in the CLOSE frame from the supervisor to its client:
// caisson::Outcome (caisson/result.h) as a list of protocol fields.
//
// Fields: kVerdict u8; kExitCode u32 and kExitSignal u32 where they apply; kCoreDumped u8;
// kVerdictCause, kVerdictDetail text; kUsage nine u64, little-endian, in ExecUsage's order; kHeld
// thirteen bytes in Limit's order; kLimitHit u8, repeated; kRefusal repeated: u32 system call, u32
// count, text. A reader takes a longer kUsage or kHeld and ignores what it does not know, so that
// both can grow.
//
// The supervisor is trusted more than a guest, but the decoder is as strict: every number out of
// its range is an error, never an unnamed enumerator.
#pragma once

#include <caisson/result.h>

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/proto.h"

namespace caisson {

inline constexpr std::size_t kMaxRefusals = 64;
// Cause and detail are cut to these lengths when encoded.
inline constexpr std::size_t kMaxVerdictCause = 64;
inline constexpr std::size_t kMaxVerdictDetail = 4096;

// The payload of the CLOSE frame.
std::string encode_outcome(const Outcome& outcome);
Result<Outcome> decode_outcome(std::string_view payload);

// Parts of it: kRefusal fields, the first kMaxRefusals; and kHeld.
std::string encode_refusals(std::span<const Refusal> refusals);
Result<std::vector<Refusal>> decode_refusals(const proto::FieldReader& fields);
Result<std::array<HeldBy, kLimits>> decode_held(const proto::FieldReader& fields);

// The outcome of a command that could not be started, as shells give it: exited 127 where there is
// no such program (ENOENT, ENOTDIR), else 126; cause "start".
Outcome outcome_not_started(int error_number, std::string_view message);

// The exit status of `caisson run` for this outcome: the program's own; 128 + signal; 124 time, 137
// memory, 122 disk, 121 process, 120 output, 119 policy, 130 cancelled, 125 our own error.
int exit_status(const Outcome& outcome);

}  // namespace caisson
