#include "image/worker_report.h"

#include <charconv>
#include <initializer_list>

#include "base/sha256.h"

namespace caisson::image {
namespace {

std::unexpected<Error> malformed() {
  return fail(Error::internal("the image worker's report is malformed"));
}

std::string encode_numbers(std::initializer_list<std::uint64_t> numbers) {
  std::string text;
  for (std::uint64_t number : numbers) text += std::to_string(number) + "\n";
  return text;
}

// Takes as many lines off `text`.
Status decode_numbers(std::string_view& text, std::initializer_list<std::uint64_t*> numbers) {
  for (std::uint64_t* number : numbers) {
    const char* last = text.data() + text.size();
    auto [end, error] = std::from_chars(text.data(), last, *number);
    if (error != std::errc() || end == last || *end != '\n') return malformed();
    text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  }
  return {};
}

}  // namespace

std::string encode_report(const UnpackReport& report) {
  return encode_numbers({report.entries, report.bytes, report.dropped_devices,
                         report.dropped_attributes, report.absolute_names});
}

Result<UnpackReport> decode_report(std::string_view text) {
  UnpackReport report;
  TRY(decode_numbers(text, {&report.entries, &report.bytes, &report.dropped_devices,
                            &report.dropped_attributes, &report.absolute_names}));
  if (!text.empty()) return malformed();
  return report;
}

std::string encode_rootfs_report(const RootfsReport& report) {
  return encode_numbers({report.entries, report.bytes, report.size});
}

Result<RootfsReport> decode_rootfs_report(std::string_view text) {
  RootfsReport report;
  TRY(decode_numbers(text, {&report.entries, &report.bytes, &report.size}));
  if (!text.empty()) return malformed();
  return report;
}

std::string LayerCounts::encode() const {
  return diff_id + "\n" + encode_numbers({whiteouts}) + encode_report(counts);
}

Result<LayerCounts> LayerCounts::decode(std::string_view text) {
  LayerCounts result;
  const std::size_t line = text.find('\n');
  if (line == std::string_view::npos || !is_sha256(text.substr(0, line))) return malformed();
  result.diff_id = text.substr(0, line);
  text.remove_prefix(line + 1);
  TRY(decode_numbers(text, {&result.whiteouts}));
  TRY_ASSIGN(result.counts, decode_report(text));
  return result;
}

}  // namespace caisson::image
