#include "http/message.h"

#include <algorithm>

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
  switch (status) {
    case 100:
      return "Continue";
    case 101:
      return "Switching Protocols";
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 301:
      return "Moved Permanently";
    case 302:
      return "Found";
    case 303:
      return "See Other";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 308:
      return "Permanent Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 406:
      return "Not Acceptable";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 410:
      return "Gone";
    case 411:
      return "Length Required";
    case 412:
      return "Precondition Failed";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 416:
      return "Range Not Satisfiable";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 426:
      return "Upgrade Required";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    case 507:
      return "Insufficient Storage";
    default:
      return "";
  }
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
