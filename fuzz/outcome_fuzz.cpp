// libraries: box guest launcher wall image policy base
// parser: src/base/verdict.cpp src/box/result_json.cpp
//
// What the supervisor says about a command's end and about its sandbox. The first byte chooses:
// even, the fields of a CLOSE frame; odd, the text that describes a sandbox. What is read is
// written again as what is read as the same, and every end has a name, a status and a sentence.
#include "base/verdict.h"
#include "box/result_json.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file

void check_outcome(std::string_view payload) {
  const auto outcome = decode_outcome(payload);
  if (!outcome.has_value()) {
    VERIFY(!outcome.error().message().empty());
    return;
  }
  VERIFY(outcome->cause.size() <= kMaxVerdictCause && outcome->detail.size() <= kMaxVerdictDetail);
  VERIFY(outcome->refusals.size() <= kMaxRefusals && outcome->limits_hit.size() <= kLimits);
  const auto again = decode_outcome(encode_outcome(*outcome));
  VERIFY(again.has_value() && *again == *outcome);
  const int status = exit_status(*outcome);
  VERIFY(status >= 0 && status <= 255);
  VERIFY((outcome->verdict == Verdict::kExited && outcome->detail.empty()) ==
         box::verdict_sentence(*outcome).empty());

  // As JSON the command's output stands beside it, whatever bytes it is.
  RunResult result;
  result.outcome = *outcome;
  result.standard_output = outcome->detail;
  const std::string line = box::result_line(result, {});
  VERIFY(!line.contains('\n'));
  const auto read = json::parse(line);
  VERIFY(read.has_value());
  const auto of_json = box::outcome_of(*read);
  VERIFY(of_json.has_value() && of_json->usage == outcome->usage);
  VERIFY(of_json->verdict == outcome->verdict && of_json->held == outcome->held);
  VERIFY(of_json->limits_hit == outcome->limits_hit);
}

void check_info(std::string_view text) {
  const auto info = box::parse_info(text);
  if (!info.has_value()) {
    const std::string line = box::error_line(info.error());
    VERIFY(json::parse(line).has_value());
    return;
  }
  const std::string written = json::serialize(box::info_value(*info));
  // Bytes that are not UTF-8 are not written, and make a text longer.
  const auto again = box::parse_info(written);
  VERIFY(again.has_value() || written.size() > (1 << 20));
  if (again.has_value()) VERIFY(json::serialize(box::info_value(*again)) == written);
  // What is cut to fit says of the rest the same.
  const auto cut = box::parse_info(box::info_text(*info, 600));
  if (cut.has_value()) VERIFY(cut->id == info->id && cut->command.size() <= info->command.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 2 == 0) {
    check_outcome(rest);
  } else {
    check_info(rest);
  }
  return 0;
}
