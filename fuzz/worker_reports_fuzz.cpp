// libraries: egress image base
// parser: src/image/worker_report.cpp src/image/layer_record.cpp src/egress/report.cpp
//
// What processes say that have read hostile bytes and may be anybody's: the image worker about its
// work, the set-up child about what it made, the egress proxy about what it saw. What is read is
// written again as what is read as the same.
#include "base/error.h"
#include "egress/report.h"
#include "image/layer_record.h"
#include "image/worker_report.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file

void check_worker(std::string_view text) {
  if (const auto report = image::decode_report(text); report.has_value()) {
    const auto again = image::decode_report(image::encode_report(*report));
    VERIFY(again.has_value() && again->entries == report->entries && again->bytes == report->bytes);
    VERIFY(again->absolute_names == report->absolute_names);
  }
  if (const auto report = image::decode_rootfs_report(text); report.has_value()) {
    const auto again = image::decode_rootfs_report(image::encode_rootfs_report(*report));
    VERIFY(again.has_value() && again->size == report->size && again->bytes == report->bytes);
  }
  if (const auto counts = image::LayerCounts::decode(text); counts.has_value()) {
    VERIFY(counts->diff_id.find_first_not_of("0123456789abcdef") == std::string::npos);
    const auto again = image::LayerCounts::decode(counts->encode());
    VERIFY(again.has_value() && again->diff_id == counts->diff_id);
    VERIFY(again->whiteouts == counts->whiteouts);
    VERIFY(again->counts.entries == counts->counts.entries);
  }
}

void check_record(std::string_view bytes) {
  const auto record = image::decode_record(bytes);
  if (!record.has_value()) {
    VERIFY(record.error().code() == Code::kDataLoss);
    return;
  }
  const auto again = image::decode_record(image::encode_record(*record));
  VERIFY(again.has_value() && *again == *record);
}

void check_proxy(std::string_view text) {
  auto report = egress::decode_report(text);
  if (!report.has_value()) {
    VERIFY(report.error().code() == Code::kDataLoss);
    return;
  }
  VERIFY(report->refusals.size() <= egress::kMostRefusals);
  // One refusal more, of a target that somebody made up.
  egress::add_refusal(*report, std::string(text), "not allowed\n");
  egress::add_refusal(*report, std::string(text), "not allowed\n");
  VERIFY(report->refusals.size() <= egress::kMostRefusals);
  const auto again = egress::decode_report(egress::encode_report(*report));
  VERIFY(again.has_value() && again->refused == report->refused);
  VERIFY(again->refusals.size() == report->refusals.size());
  for (std::size_t i = 0; i < again->refusals.size(); ++i) {
    VERIFY(again->refusals[i].target == report->refusals[i].target);
    VERIFY(again->refusals[i].reason == report->refusals[i].reason);
    for (const char c : again->refusals[i].target) VERIFY(c >= 0x20 && c < 0x7f);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  check_worker(bytes);
  check_record(bytes);
  check_proxy(bytes);
  return 0;
}
