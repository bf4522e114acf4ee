// What is pure of /files: headers and the like.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>

#include "api/e2b/entry.h"
#include "api/e2b/files.h"
#include "api/e2b/path.h"

namespace caisson::api::e2b {

namespace {

using proto::Tag;

constexpr std::string_view kMetadataHeader = "x-metadata-";
// An attribute's name has at most 255 bytes, and the prefix is a part of it.
constexpr std::size_t kMaxKey = 255 - kMetadataPrefix.size();
constexpr std::size_t kMaxMetadata = 4096;
constexpr std::size_t kMaxKeys = 64;

bool printable(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

Result<std::optional<ByteRange>> parse_range(std::optional<std::string_view> header,
                                             std::uint64_t size) {
  constexpr std::string_view kUnit = "bytes=";
  if (!header.has_value() || !header->starts_with(kUnit)) return std::nullopt;
  const std::string_view range = header->substr(kUnit.size());
  const std::size_t dash = range.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  const std::string_view from = range.substr(0, dash), to = range.substr(dash + 1);
  const auto first = number(from), last = number(to);
  if ((!from.empty() && !first.has_value()) || (!to.empty() && !last.has_value()) ||
      (from.empty() && to.empty()) || (first.has_value() && last.has_value() && *last < *first)) {
    return std::nullopt;
  }
  const auto outside = [&] {
    return fail(Error(Code::kOutOfRange, "the range is outside of the file, which has " +
                                             std::to_string(size) + " bytes"));
  };
  if (!first.has_value()) {
    const std::uint64_t count = std::min(*last, size);
    if (count == 0) return outside();
    return ByteRange{size - count, count};
  }
  if (*first >= size) return outside();
  const std::uint64_t end = last.has_value() ? std::min(*last, size - 1) : size - 1;
  return ByteRange{*first, end - *first + 1};
}

std::string http_date(std::int64_t seconds) {
  using namespace std::chrono;
  constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const sys_seconds time{std::chrono::seconds(seconds)};
  const sys_days day = floor<days>(time);
  const year_month_day date(day);
  const hh_mm_ss clock(time - day);
  std::array<char, 64> text = {};
  std::snprintf(text.data(), text.size(), "%s, %02u %s %04d %02d:%02d:%02d GMT",
                kDays[weekday(day).c_encoding()], static_cast<unsigned>(date.day()),
                kMonths[static_cast<unsigned>(date.month()) - 1], static_cast<int>(date.year()),
                static_cast<int>(clock.hours().count()), static_cast<int>(clock.minutes().count()),
                static_cast<int>(clock.seconds().count()));
  return text.data();
}

std::string inline_disposition(std::string_view name) {
  if (printable(name)) {
    std::string text = "inline; filename=\"";
    for (const char c : name) {
      if (c == '"' || c == '\\') text += '\\';
      text += c;
    }
    return text + '"';
  }
  constexpr std::string_view kPlain = "!#$&+-.^_`|~";
  std::string text = "inline; filename*=utf-8''";
  for (const char c : name) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (letter || kPlain.find(c) != std::string_view::npos) {
      text += c;
      continue;
    }
    std::array<char, 4> escape = {};
    std::snprintf(escape.data(), escape.size(), "%%%02X", static_cast<unsigned char>(c));
    text += escape.data();
  }
  return text;
}

Result<std::map<std::string, std::string>> metadata_headers(const http::Headers& headers) {
  std::map<std::string, std::string> metadata;
  std::size_t total = 0;
  for (const auto& [name, value] : headers.all()) {
    std::string key = lower_case(name);
    if (!key.starts_with(kMetadataHeader)) continue;
    key.erase(0, kMetadataHeader.size());
    if (key.empty() || key.size() > kMaxKey) {
      return fail(Error::invalid("metadata: a key has " + std::to_string(key.size()) +
                                 " characters; allowed are 1 to " + std::to_string(kMaxKey)));
    }
    if (!printable(key) || !printable(value)) {
      return fail(Error::invalid("metadata: '" + key + "': allowed is printable ASCII"));
    }
    total += key.size() + value.size();
    metadata[std::move(key)] = value;
  }
  if (total > kMaxMetadata || metadata.size() > kMaxKeys) {
    return fail(Error::invalid("metadata: " + std::to_string(metadata.size()) + " keys with " +
                               std::to_string(total) + " characters together; allowed are " +
                               std::to_string(kMaxKeys) + " with " + std::to_string(kMaxMetadata)));
  }
  return metadata;
}

void put_metadata(proto::Fields& fields, const std::map<std::string, std::string>& metadata) {
  fields.put(Tag::kXattrPrefix, kMetadataPrefix);
  for (const auto& [key, value] : metadata) {
    fields.put(Tag::kXattrName, std::string(kMetadataPrefix) + key).put(Tag::kXattrValue, value);
  }
}

json::Value written_file(std::string_view path,
                         const std::map<std::string, std::string>& metadata) {
  json::Value file = json::Value::object();
  file.set("path", path).set("name", base_name(path)).set("type", "file");
  if (metadata.empty()) return file;
  json::Value shown = json::Value::object();
  for (const auto& [key, value] : metadata) shown.set(key, value);
  file.set("metadata", std::move(shown));
  return file;
}

}  // namespace caisson::api::e2b
