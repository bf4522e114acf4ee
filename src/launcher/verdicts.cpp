#include "launcher/verdicts.h"

#include <algorithm>
#include <limits>

#include "base/proto.h"
#include "base/verdict.h"

namespace caisson::launcher {

using proto::Tag;

void Verdicts::add(const Which& which, const Outcome& outcome) {
  proto::Fields fields;
  fields.put_u32(Tag::kCommand, which.command)
      .put(Tag::kProgram, which.program)
      .put_u64(Tag::kStartedMs, which.started_ms)
      .put_u64(Tag::kEndedMs, which.ended_ms);
  all_.push_back(fields.bytes() + encode_outcome(outcome));
  bytes_ += all_.back().size();
  ++count_;
  while (all_.size() > kMost || (bytes_ > kMostBytes && all_.size() > 1)) {
    bytes_ -= all_.front().size();
    all_.pop_front();
  }
  for (const Refusal& refusal : outcome.refusals) {
    const auto known = std::ranges::find_if(refusals_, [&](const Refusal& one) {
      return one.syscall == refusal.syscall && one.what == refusal.what;
    });
    if (known == refusals_.end()) {
      if (refusals_.size() < kMaxRefusals) refusals_.push_back(refusal);
      continue;
    }
    constexpr std::uint32_t kMax = std::numeric_limits<std::uint32_t>::max();
    known->count += std::min(refusal.count, kMax - known->count);
  }
}

std::string Verdicts::refusals() const {
  return encode_refusals(refusals_);
}

}  // namespace caisson::launcher
