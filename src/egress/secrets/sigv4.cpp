#include "egress/secrets/sigv4.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <utility>

#include "base/encoding.h"
#include "base/sha256.h"
#include "egress/secrets/decoding.h"
#include "http/text.h"

namespace caisson::egress::sigv4 {
namespace {

constexpr std::string_view kEnd = "aws4_request";
constexpr std::size_t kMostWord = 128;
constexpr std::size_t kMostHeaders = 100;

// All of them are there, also an empty last one.
std::vector<std::string_view> parts_of(std::string_view text, char between) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(between);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

bool is_word(std::string_view text) {
  return !text.empty() && text.size() <= kMostWord && std::ranges::all_of(text, [](char c) {
    return http::is_letter_or_digit(c) || c == '-' || c == '_' || c == '.' || c == '~';
  });
}

bool is_date(std::string_view text) {
  return text.size() == 8 && std::ranges::all_of(text, http::is_digit);
}

bool read_credential(std::string_view text, Authorization& made) {
  const auto parts = parts_of(text, '/');
  if (parts.size() != 5 || !is_word(parts[0]) || !is_date(parts[1]) || !is_word(parts[2]) ||
      !is_word(parts[3]) || parts[4] != kEnd)
    return false;
  made.access_key = parts[0];
  made.scope = {std::string(parts[1]), std::string(parts[2]), std::string(parts[3])};
  return true;
}

bool read_headers(std::string_view text, Authorization& made) {
  bool host = false;
  for (const std::string_view name : parts_of(text, ';')) {
    const bool small = std::ranges::none_of(name, [](char c) { return c >= 'A' && c <= 'Z'; });
    if (!http::is_token(name) || !small || made.signed_headers.size() == kMostHeaders) return false;
    if (!made.signed_headers.empty() && made.signed_headers.back() >= name) return false;
    host = host || name == "host";
    made.signed_headers.emplace_back(name);
  }
  return host;
}

bool read_signature(std::string_view text, Authorization& made) {
  made.signature = text;
  return is_sha256(text);
}

// A header's value as it is signed: no blanks around it, one space for blanks within.
std::string folded(std::string_view value) {
  std::string text;
  for (const char c : http::trimmed(value)) {
    const bool blank = c == ' ' || c == '\t';
    if (blank && text.ends_with(' ')) continue;
    text += blank ? ' ' : c;
  }
  return text;
}

std::string sha256_of(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.finish();
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ";") + name;
  return text;
}

}  // namespace

std::string Scope::text() const {
  return date + "/" + region + "/" + service + "/" + std::string(kEnd);
}

std::optional<Authorization> parse_authorization(std::string_view value) {
  if (!value.starts_with(kAlgorithm)) return std::nullopt;
  value.remove_prefix(kAlgorithm.size());
  if (!value.starts_with(' ')) return std::nullopt;
  using Read = bool (*)(std::string_view, Authorization&);
  constexpr std::array<std::pair<std::string_view, Read>, 3> kFields = {{
      {"Credential=", read_credential},
      {"SignedHeaders=", read_headers},
      {"Signature=", read_signature},
  }};
  std::array<bool, kFields.size()> seen = {};
  Authorization made;
  for (const std::string_view part : parts_of(value, ',')) {
    const std::string_view field = http::trimmed(part);
    std::size_t which = 0;
    while (which < kFields.size() && !field.starts_with(kFields[which].first)) ++which;
    if (which == kFields.size() || std::exchange(seen[which], true)) return std::nullopt;
    if (!kFields[which].second(field.substr(kFields[which].first.size()), made))
      return std::nullopt;
  }
  if (!std::ranges::all_of(seen, [](bool one) { return one; })) return std::nullopt;
  return made;
}

std::string written(const Authorization& authorization) {
  return std::string(kAlgorithm) + " Credential=" + authorization.access_key + "/" +
         authorization.scope.text() + ", SignedHeaders=" + joined(authorization.signed_headers) +
         ", Signature=" + authorization.signature;
}

std::string timestamp(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &parts)};
}

bool is_timestamp(std::string_view text) {
  constexpr std::size_t kDate = 8, kTime = 6;
  return text.size() == kDate + 1 + kTime + 1 && text[kDate] == 'T' && text.back() == 'Z' &&
         is_date(text.substr(0, kDate)) &&
         std::ranges::all_of(text.substr(kDate + 1, kTime), http::is_digit);
}

std::string encoded_path(std::string_view path) {
  std::string text;
  for (const std::string_view segment : parts_of(path, '/')) {
    text += percent_encode(segment);
    text += '/';
  }
  text.pop_back();
  return text;
}

std::string canonical_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> parameters;
  for (const std::string_view part : parts_of(query, '&')) {
    if (part.empty()) continue;
    const std::size_t equals = std::min(part.find('='), part.size());
    const auto again = [](std::string_view text) {
      return percent_encode(decode(text, Decoding::kPercent).text);
    };
    parameters.emplace_back(again(part.substr(0, equals)),
                            again(part.substr(std::min(equals + 1, part.size()))));
  }
  std::ranges::sort(parameters);
  std::string text;
  for (const auto& [name, value] : parameters)
    text += (text.empty() ? "" : "&") + name + "=" + value;
  return text;
}

std::string canonical_request(const http::RequestHead& head, std::string_view path,
                              std::string_view query,
                              const std::vector<std::string>& signed_headers,
                              std::string_view payload) {
  std::string text = head.method;
  text.append("\n").append(path).append("\n").append(query).append("\n");
  for (const std::string& signed_name : signed_headers) {
    std::string values;
    bool first = true;
    for (const auto& [name, value] : head.headers.all()) {
      if (!http::same_name(name, signed_name)) continue;
      if (!std::exchange(first, false)) values += ',';
      values += folded(value);
    }
    text.append(signed_name).append(":").append(values).append("\n");
  }
  return text.append("\n").append(joined(signed_headers)).append("\n").append(payload);
}

SecretValue derived_key(std::string_view secret_key, const Scope& scope) {
  constexpr std::string_view kBefore = "AWS4";
  SecretBytes first(kBefore.begin(), kBefore.end());
  first.insert(first.end(), secret_key.begin(), secret_key.end());
  std::string key = hmac_sha256({first.data(), first.size()}, scope.date);
  for (const std::string_view part :
       {std::string_view(scope.region), std::string_view(scope.service), kEnd}) {
    std::string next = hmac_sha256(key, part);
    wipe(key);
    key = std::move(next);
  }
  return SecretValue::take(key);
}

std::string signature(std::string_view derived_key, std::string_view time, const Scope& scope,
                      std::string_view canonical_request) {
  std::string text(kAlgorithm);
  text.append("\n").append(time).append("\n").append(scope.text()).append("\n");
  text += sha256_of(canonical_request);
  return hex_encode(hmac_sha256(derived_key, text));
}

}  // namespace caisson::egress::sigv4
