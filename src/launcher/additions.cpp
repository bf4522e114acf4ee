#include "launcher/additions.h"

#include "base/proto.h"

namespace caisson::launcher {

using proto::ErrorSubject;
using proto::Tag;

std::string with_counters(std::string_view sample, const wall::Usage& usage) {
  proto::Fields fields;
  const auto put = [&](std::string_view name, std::uint64_t value) {
    // Zero: nothing counts it here.
    if (value != 0) fields.put(Tag::kMetricName, name).put_u64(Tag::kMetricValue, value);
  };
  put("cpu_used_us", usage.user_us + usage.system_us);
  put("memory_used", usage.memory_now);
  put("memory_cache", usage.memory_cache);
  std::string all(sample);
  if (all.size() + fields.bytes().size() <= proto::kMaxPayload) all += fields.bytes();
  return all;
}

std::string start_error(std::string_view close) {
  constexpr std::uint64_t kErrnoBits = 0xfff;
  const auto fields = proto::FieldReader::parse(close);
  const auto subject = fields ? fields->number_or_none(Tag::kErrorSubject) : std::nullopt;
  if (!subject || *subject < static_cast<std::uint64_t>(ErrorSubject::kUser) ||
      *subject > static_cast<std::uint64_t>(ErrorSubject::kProgram))
    return {};
  proto::Fields told;
  told.put_u8(Tag::kErrorSubject, static_cast<std::uint8_t>(*subject));
  if (const auto number = fields->number_or_none(Tag::kErrorErrno))
    told.put_u32(Tag::kErrorErrno, static_cast<std::uint32_t>(*number & kErrnoBits));
  return told.bytes();
}

}  // namespace caisson::launcher
