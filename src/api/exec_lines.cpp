#include "api/exec_lines.h"

#include "base/encoding.h"
#include "base/json.h"
#include "base/verdict.h"
#include "box/result_json.h"

namespace caisson::api {
namespace {

std::string line(std::string_view key, json::Value value) {
  json::Value object = json::Value::object();
  object.set(key, std::move(value));
  return json::serialize(object) + "\n";
}

std::string output_line(proto::Channel channel, std::string_view bytes) {
  const std::string_view key = channel == proto::Channel::kErr ? "stderr" : "stdout";
  if (is_utf8(bytes)) return line(key, bytes);
  json::Value object = json::Value::object();
  object.set(key, base64_encode(bytes));
  object.set("encoding", "base64");
  return json::serialize(object) + "\n";
}

json::Value error_value(const Error& error) {
  json::Value value = json::Value::object();
  value.set("code", to_string(error.code()));
  value.set("message", error.message());
  return value;
}

}  // namespace

Result<std::string> ExecLines::take(const fleet::BoxStream::Message& message) {
  using Kind = fleet::BoxStream::Message::Kind;
  switch (message.kind) {
    case Kind::kData:
      return output(message.channel, message.bytes);
    case Kind::kFinish:
      return flush(message.channel);
    case Kind::kClose:
      return close(message.bytes);
    case Kind::kEvent:
      break;
  }
  TRY_ASSIGN(const proto::FieldReader fields, proto::FieldReader::parse(message.bytes));
  if (const auto missed = fields.number_or_none(proto::Tag::kMissed); missed.has_value())
    return flush_all() + line("missed", *missed);
  const auto pid = fields.number_or_none(proto::Tag::kStarted);
  if (!pid.has_value()) return std::string();
  started_ = true;
  json::Value started = json::Value::object();
  started.set("pid", *pid);
  return line("started", std::move(started));
}

std::string ExecLines::output(proto::Channel channel, std::string_view bytes) {
  std::string& partial = partial_.at(static_cast<std::size_t>(channel));
  const std::string all = partial + std::string(bytes);
  const std::string_view whole = box::without_partial_character(all);
  partial = all.substr(whole.size());
  return whole.empty() ? std::string() : output_line(channel, whole);
}

std::string ExecLines::flush(proto::Channel channel) {
  const std::string rest = std::exchange(partial_.at(static_cast<std::size_t>(channel)), "");
  return rest.empty() ? std::string() : output_line(channel, rest);
}

std::string ExecLines::flush_all() {
  return flush(proto::Channel::kOut) + flush(proto::Channel::kErr);
}

Result<std::string> ExecLines::close(std::string_view payload) {
  ended_ = true;
  TRY_ASSIGN(const proto::FieldReader fields, proto::FieldReader::parse(payload));
  if (started_ && !fields.has(proto::Tag::kVerdict) && !fields.has(proto::Tag::kErrorCode))
    return flush_all() + line("goes_on", true);
  if (!fields.has(proto::Tag::kVerdict)) {
    const Error refused = fields.error().value_or(Error::internal("the command was not run"));
    return flush_all() + line("error", error_value(refused));
  }
  RunResult result;
  TRY_ASSIGN(result.outcome, decode_outcome(payload));
  const std::string end = box::result_line(
      result,
      {.wall = "namespace", .image = image_, .output = box::ResultContext::Output::kElsewhere});
  return flush_all() + "{\"end\":" + end + "}\n";
}

}  // namespace caisson::api
