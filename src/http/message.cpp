#include "http/message.h"

#include <algorithm>
#include <iterator>

#include "http/text.h"

namespace caisson::http {
namespace {

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

enum class Plus : std::uint8_t { kIsPlus, kIsSpace };

// nullopt: a malformed escape or a zero byte.
std::optional<std::string> decode(std::string_view text, Plus plus) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (text.size() - i < 3) return std::nullopt;
      const auto high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
      if (!high.has_value() || !low.has_value()) return std::nullopt;
      c = static_cast<char>(*high * 16 + *low);
      i += 2;
    } else if (c == '+' && plus == Plus::kIsSpace) {
      c = ' ';
    }
    if (c == '\0') return std::nullopt;
    out += c;
  }
  return out;
}

// By status, ascending.
constexpr std::pair<int, std::string_view> kReasons[] = {
    {100, "Continue"},
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {416, "Range Not Satisfiable"},
    {417, "Expectation Failed"},
    {422, "Unprocessable Content"},
    {426, "Upgrade Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
};

// What is before the first `mark`; it and what is behind it is left.
std::string_view take_until(std::string_view& text, char mark) {
  const std::size_t end = std::min(text.find(mark), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(end);
  return taken;
}

}  // namespace

Headers::Headers(std::initializer_list<std::pair<std::string_view, std::string_view>> list) {
  for (const auto& [name, value] : list) add(name, value);
}

std::optional<std::string_view> Headers::get(std::string_view name) const {
  for (const auto& [own, value] : all_) {
    if (same_name(own, name)) return value;
  }
  return std::nullopt;
}

std::string Headers::joined(std::string_view name) const {
  std::string out;
  bool first = true;
  for (const auto& [own, value] : all_) {
    if (!same_name(own, name)) continue;
    if (!first) out += ", ";
    first = false;
    out += value;
  }
  return out;
}

Headers& Headers::add(std::string_view name, std::string_view value) {
  all_.emplace_back(name, value);
  return *this;
}

Headers& Headers::set(std::string_view name, std::string_view value) {
  remove(name);
  return add(name, value);
}

Headers& Headers::remove(std::string_view name) {
  std::erase_if(all_, [name](const auto& header) { return same_name(header.first, name); });
  return *this;
}

std::string_view reason_of(int status) {
  const auto* const found = std::ranges::lower_bound(
      kReasons, status, {}, [](const auto& reason) { return reason.first; });
  return found != std::end(kReasons) && found->first == status ? found->second : "";
}

std::optional<std::string_view> Target::query_value(std::string_view name) const {
  for (const auto& [own, value] : query) {
    if (own == name) return value;
  }
  return std::nullopt;
}

std::optional<Target> parse_target(std::string_view target) {
  if (!target.starts_with('/')) {
    // Absolute form: SCHEME://AUTHORITY, and a path that may be missing.
    const std::size_t scheme = target.find("://");
    if (scheme == std::string_view::npos) return std::nullopt;
    target.remove_prefix(scheme + 3);
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
  }
  Target out;
  std::string_view path = take_until(target, '?');
  out.path = "/";
  while (!path.empty()) {
    path.remove_prefix(1);
    auto segment = decode(take_until(path, '/'), Plus::kIsPlus);
    if (!segment.has_value()) return std::nullopt;
    if (!out.segments.empty()) out.path += '/';
    out.path += *segment;
    out.segments.push_back(std::move(*segment));
  }
  if (out.segments.size() == 1 && out.segments.front().empty()) out.segments.clear();

  while (!target.empty()) {
    target.remove_prefix(1);
    std::string_view pair = take_until(target, '&');
    if (pair.empty()) continue;
    auto name = decode(take_until(pair, '='), Plus::kIsSpace);
    auto value = decode(pair.substr(std::min<std::size_t>(1, pair.size())), Plus::kIsSpace);
    if (!name.has_value() || !value.has_value()) return std::nullopt;
    out.query.emplace_back(std::move(*name), std::move(*value));
  }
  return out;
}

}  // namespace caisson::http
