// Amounts as people write them: sizes (512MiB, 1GB, 64k, 65536), counts (256, 100k), processors
// (0.5, 1.5), durations (500ms, 30s, 2m, 1h), rates (a size or a count, with or without /s) and
// `unlimited`. A fraction is accepted where the
// result is whole (1.5GiB). Zero is refused, since it might mean "none" or "no limit". Every error
// reads "found X; allowed is Y"; the caller puts its key before it. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "policy/limits.h"

namespace caisson::policy {

// k, M, G, T, P are decimal, with or without B; KiB, MiB, GiB, TiB, PiB are powers of 1024.
Result<std::uint64_t> parse_size(std::string_view text);
// k, M and G are decimal.
Result<std::uint64_t> parse_count(std::string_view text);
// Thousandths of a processor.
Result<std::uint64_t> parse_cpus(std::string_view text);
// Milliseconds; ms, s, m, h or d must be written.
Result<std::uint64_t> parse_duration(std::string_view text);

// Any of the above, a rate of bytes or of operations a second, or `unlimited`.
Result<LimitValue> parse_limit(LimitUnit unit, std::string_view text);

// The one way of writing an amount, which is read back as exactly the same.
std::string format_limit(LimitUnit unit, LimitValue value);
// What such an amount looks like, for a message: "a size such as 512MiB, …".
std::string_view describe(LimitUnit unit);

}  // namespace caisson::policy
