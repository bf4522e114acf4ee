#include "cli/remote/output_lines.h"

#include "base/encoding.h"
#include "box/result_json.h"

namespace caisson::cli {
namespace {

// A line holds one frame's bytes, which JSON makes longer.
constexpr std::size_t kMostLine = 1 << 20;

Error strange() {
  return Error(Code::kDataLoss, "the server sent a line that is none of a command's");
}

Code code_named(std::string_view name) {
  for (auto code = Code::kCancelled; code <= Code::kUnauthenticated;
       code = static_cast<Code>(static_cast<int>(code) + 1))
    if (to_string(code) == name) return code;
  return Code::kUnknown;
}

Result<OutputLines::Line> output_of(OutputChannel channel, const json::Value& text,
                                    const json::Value& line) {
  if (text.as_string() == nullptr) return fail(strange());
  OutputLines::Line output{.kind = OutputLines::Line::Kind::kOutput, .channel = channel};
  output.bytes = *text.as_string();
  if (line.find("encoding") == nullptr) return output;
  auto bytes = base64_decode(output.bytes);
  if (!bytes.has_value()) return fail(strange());
  output.bytes = std::move(*bytes);
  return output;
}

Error refusal_of(const json::Value& error) {
  const json::Value* code = error.find("code");
  const json::Value* message = error.find("message");
  if (code == nullptr || code->as_string() == nullptr || message == nullptr ||
      message->as_string() == nullptr)
    return strange();
  return Error(code_named(*code->as_string()), *message->as_string());
}

Result<OutputLines::Line> parse_line(std::string_view text) {
  using Line = OutputLines::Line;
  const auto line = json::parse(text);
  if (!line.has_value()) return fail(strange());
  if (const json::Value* out = line->find("stdout"))
    return output_of(OutputChannel::kStdout, *out, *line);
  if (const json::Value* err = line->find("stderr"))
    return output_of(OutputChannel::kStderr, *err, *line);
  if (line->find("started") != nullptr) return Line{.kind = Line::Kind::kStarted};
  if (line->find("goes_on") != nullptr) return Line{.kind = Line::Kind::kGoesOn};
  if (const json::Value* error = line->find("error")) return fail(refusal_of(*error));
  if (const json::Value* missed = line->find("missed")) {
    if (missed->as_integer() == nullptr || *missed->as_integer() < 0) return fail(strange());
    return Line{.kind = Line::Kind::kMissed,
                .missed = static_cast<std::uint64_t>(*missed->as_integer())};
  }
  if (const json::Value* end = line->find("end")) {
    Line last{.kind = Line::Kind::kEnd};
    TRY_ASSIGN(last.outcome, box::outcome_of(*end));
    return last;
  }
  return fail(strange());
}

}  // namespace

Result<std::optional<OutputLines::Line>> OutputLines::next() {
  const std::size_t end = buffer_.find('\n');
  if (end == std::string::npos && buffer_.size() > kMostLine) return fail(strange());
  if (end == std::string::npos) return std::nullopt;
  auto line = parse_line(std::string_view(buffer_).substr(0, end));
  buffer_.erase(0, end + 1);
  if (!line.has_value()) return fail(std::move(line).error());
  return std::move(*line);
}

}  // namespace caisson::cli
