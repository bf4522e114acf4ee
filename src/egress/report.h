// The proxy's report on its way from the proxy's process to the one that started it. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "egress/proxy.h"

namespace caisson::egress {

inline constexpr std::size_t kMostRefusals = 64;
inline constexpr std::size_t kMostReport = 64 * 1024;

// Counts one refusal.
void add_refusal(Report& report, const std::string& target, const std::string& reason);

// At most kMostReport bytes.
std::string encode_report(const Report& report);
// Error: data_loss; the process that wrote it has read hostile bytes.
Result<Report> decode_report(std::string_view text);

}  // namespace caisson::egress
