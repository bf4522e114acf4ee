#include "http/connect.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "http/text.h"

namespace caisson::http {
namespace {

constexpr std::size_t kPrefix = 5;
constexpr std::size_t kMostTimeoutDigits = 10;

json::Value error_value(const Error& error) {
  json::Value value = json::Value::object();
  value.set("code", to_string(error.code()));
  value.set("message", error.message());
  return value;
}

std::uint32_t read_length(std::string_view prefix) {
  std::uint32_t length = 0;
  for (const char c : prefix.substr(1, 4)) length = length << 8 | static_cast<unsigned char>(c);
  return length;
}

}  // namespace

std::string envelope(std::uint8_t flags, std::string_view message) {
  VERIFY(std::in_range<std::uint32_t>(message.size()));
  std::string out;
  out.reserve(kPrefix + message.size());
  out += static_cast<char>(flags);
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(message.size() >> shift);
  out += message;
  return out;
}

void EnvelopeReader::feed(std::string_view bytes) {
  buffer_.erase(0, std::exchange(taken_, 0));
  buffer_ += bytes;
}

Result<std::optional<EnvelopeReader::Message>> EnvelopeReader::next() {
  const std::string_view rest = std::string_view(buffer_).substr(taken_);
  if (rest.empty()) return std::nullopt;
  const auto flags = static_cast<std::uint8_t>(rest.front());
  if ((flags & kCompressed) != 0)
    return fail(Error(Code::kUnimplemented, "a compressed message; none was agreed on"));
  if ((flags & ~kEndStream) != 0)
    return fail(
        Error::invalid("an envelope with flags " + std::to_string(flags) + "; 0 and 2 are known"));
  if (rest.size() < kPrefix) return std::nullopt;
  const std::uint32_t length = read_length(rest);
  if (length > most_)
    return fail(Error::exhausted("a message of " + std::to_string(length) + " bytes; " +
                                 std::to_string(most_) + " are allowed"));
  if (rest.size() - kPrefix < length) return std::nullopt;
  taken_ += kPrefix + length;
  return Message{flags, std::string(rest.substr(kPrefix, length))};
}

int rpc_status_of(Code code) {
  switch (code) {
    case Code::kCancelled:
      return 499;
    case Code::kInvalidArgument:
    case Code::kFailedPrecondition:
    case Code::kOutOfRange:
      return 400;
    case Code::kUnauthenticated:
      return 401;
    case Code::kPermissionDenied:
      return 403;
    case Code::kNotFound:
      return 404;
    case Code::kAlreadyExists:
    case Code::kAborted:
      return 409;
    case Code::kResourceExhausted:
      return 429;
    case Code::kUnimplemented:
      return 501;
    case Code::kUnavailable:
      return 503;
    case Code::kDeadlineExceeded:
      return 504;
    case Code::kUnknown:
    case Code::kInternal:
    case Code::kDataLoss:
      break;
  }
  return 500;
}

std::string error_json(const Error& error) {
  return json::serialize(error_value(error));
}

std::string end_stream_json(const std::optional<Error>& error) {
  if (!error.has_value()) return "{}";
  json::Value value = json::Value::object();
  value.set("error", error_value(*error));
  return json::serialize(value);
}

Result<std::optional<std::chrono::milliseconds>> parse_timeout(
    std::optional<std::string_view> value) {
  if (!value.has_value()) return std::nullopt;
  if (value->empty() || value->size() > kMostTimeoutDigits ||
      !std::ranges::all_of(*value, is_digit))
    return fail(Error::invalid("Connect-Timeout-Ms is not a number of 1 to 10 digits"));
  std::int64_t number = 0;
  for (const char c : *value) number = number * 10 + (c - '0');
  return std::chrono::milliseconds(number);
}

}  // namespace caisson::http
