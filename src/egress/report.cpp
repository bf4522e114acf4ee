#include "egress/report.h"

#include <algorithm>
#include <charconv>

namespace caisson::egress {
namespace {

constexpr std::size_t kMostTarget = 300;
constexpr std::size_t kMostReason = 400;

// Printable ASCII, so that neither lines nor a terminal can be played with.
std::string plain(std::string_view text, std::size_t most) {
  std::string shown;
  for (const char c : text.substr(0, most)) shown += c >= 0x20 && c < 0x7f ? c : '?';
  return shown;
}

bool is_plain(std::string_view text, std::size_t most) {
  return text.size() <= most &&
         std::all_of(text.begin(), text.end(), [](char c) { return c >= 0x20 && c < 0x7f; });
}

class Reader {
 public:
  explicit Reader(std::string_view text) : left_(text) {}
  std::string_view line() {
    const std::size_t end = left_.find('\n');
    whole_ = whole_ && end != std::string_view::npos;
    if (!whole_) return {};
    const std::string_view found = left_.substr(0, end);
    left_.remove_prefix(end + 1);
    return found;
  }
  std::uint64_t number() {
    const std::string_view text = line();
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    whole_ = whole_ && error == std::errc() && end == text.data() + text.size();
    return value;
  }
  std::string text(std::size_t most) {
    const std::string_view found = line();
    whole_ = whole_ && is_plain(found, most);
    return std::string(found);
  }
  bool whole() const { return whole_; }
  bool empty() const { return left_.empty(); }

 private:
  std::string_view left_;
  bool whole_ = true;
};

}  // namespace

void add_refusal(Report& report, const std::string& target, const std::string& reason) {
  ++report.refused;
  const std::string shown = plain(target, kMostTarget), why = plain(reason, kMostReason);
  for (Refusal& known : report.refusals) {
    if (known.target != shown || known.reason != why) continue;
    ++known.count;
    return;
  }
  if (report.refusals.size() < kMostRefusals) report.refusals.push_back({shown, why, 1});
}

std::string encode_report(const Report& report) {
  std::string text;
  for (const std::uint64_t value :
       {report.connections, report.bytes_out, report.bytes_in, report.refused})
    text += std::to_string(value) + "\n";
  for (const Refusal& refusal : report.refusals)
    text += std::to_string(refusal.count) + "\n" + refusal.target + "\n" + refusal.reason + "\n";
  return text;
}

Result<Report> decode_report(std::string_view text) {
  Reader reader(text);
  Report report;
  for (std::uint64_t* value :
       {&report.connections, &report.bytes_out, &report.bytes_in, &report.refused})
    *value = reader.number();
  while (reader.whole() && !reader.empty() && report.refusals.size() < kMostRefusals) {
    Refusal refusal;
    refusal.count = reader.number();
    refusal.target = reader.text(kMostTarget);
    refusal.reason = reader.text(kMostReason);
    report.refusals.push_back(std::move(refusal));
  }
  if (!reader.whole() || !reader.empty())
    return fail(Error(Code::kDataLoss, "the egress proxy's report is malformed"));
  return report;
}

}  // namespace caisson::egress
