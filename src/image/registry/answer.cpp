#include "image/registry/answer.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <span>

#include "base/json.h"
#include "image/json_fields.h"
#include "image/reference.h"

namespace caisson::image {

std::optional<std::chrono::seconds> parse_retry_after(std::string_view text, std::int64_t now) {
  std::int64_t seconds = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error == std::errc() && end == text.data() + text.size()) {
    if (seconds < 0) return std::nullopt;
    return std::min<std::chrono::seconds>(std::chrono::seconds(seconds), kMostRetryAfter);
  }
  std::tm time = {};
  const std::string date(text);
  const char* rest = ::strptime(date.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &time);
  if (rest == nullptr || *rest != '\0') return std::nullopt;
  return std::clamp<std::chrono::seconds>(std::chrono::seconds(::timegm(&time) - now),
                                          std::chrono::seconds(0), kMostRetryAfter);
}

std::optional<std::uint64_t> parse_range_start(std::string_view content_range) {
  constexpr std::string_view kUnit = "bytes ";
  if (!content_range.starts_with(kUnit)) return std::nullopt;
  content_range.remove_prefix(kUnit.size());
  std::uint64_t first = 0;
  auto [end, error] =
      std::from_chars(content_range.data(), content_range.data() + content_range.size(), first);
  if (error != std::errc() || end == content_range.data() + content_range.size() || *end != '-') {
    return std::nullopt;
  }
  return first;
}

std::string error_messages(std::string_view body) {
  auto root = json::parse(body, {.bytes = 64 << 10, .depth = 16, .values = 1000});
  if (!root.has_value()) return "";
  const auto errors = items_of(Field{&*root, ""}.at("errors"), 100);
  if (!errors.has_value()) return "";
  std::string text;
  for (const Field& error : std::span(*errors).first(std::min<std::size_t>(3, errors->size()))) {
    const auto code = text_of(error.at("code"));
    const auto message = text_of(error.at("message"));
    const std::string& said = message.has_value() && !message->empty() ? *message
                              : code.has_value()                       ? *code
                                                                       : std::string();
    if (said.empty()) continue;
    if (!text.empty()) text += ", ";
    text += printable(said);
  }
  return text;
}

}  // namespace caisson::image
