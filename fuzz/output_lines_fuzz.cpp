// libraries: remote
// parser: src/cli/remote/output_lines.cpp src/box/result_json.cpp
//
// The lines by which a server gives a command's output, in pieces whose size the first byte says:
// however they come, they mean the same.
#include "box/result_json.h"
#include "cli/remote/output_lines.h"

namespace {

using caisson::cli::OutputLines;

struct Read {
  std::string output;
  std::size_t lines = 0;
  bool failed = false;
};

Read read(std::string_view text, std::size_t piece) {
  Read result;
  OutputLines lines;
  while (!text.empty()) {
    lines.feed(text.substr(0, piece));
    text.remove_prefix(std::min(piece, text.size()));
    for (;;) {
      auto line = lines.next();
      if (!line.has_value()) {
        result.failed = true;
        return result;
      }
      if (!line->has_value()) break;
      ++result.lines;
      result.output += (*line)->bytes;
      // What is an outcome is one again.
      if ((*line)->kind != OutputLines::Line::Kind::kEnd) continue;
      caisson::RunResult run;
      run.outcome = (*line)->outcome;
      const auto again = caisson::box::outcome_of(caisson::box::result_value(run, {}));
      VERIFY(again.has_value() && *again == run.outcome);
    }
  }
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const Read whole = read(text, text.size() + 1), pieces = read(text, data[0] + 1U);
  VERIFY(whole.output == pieces.output);
  VERIFY(whole.lines == pieces.lines);
  VERIFY(whole.failed == pieces.failed);
  return 0;
}
