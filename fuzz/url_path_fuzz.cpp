// libraries: policy base
// parser: src/policy/url_path.cpp
//
// Targets of requests and patterns of paths: each line of the input is both, and the line before it
// is its pattern.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "policy/url_path.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file
using namespace caisson::policy;

int hex_value(char c) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const std::size_t at = kDigits.find(static_cast<char>(c >= 'A' && c <= 'F' ? c + 32 : c));
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

// As a careless server decodes.
std::string decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size() && hex_value(text[i + 1]) >= 0 &&
                        hex_value(text[i + 2]) >= 0;
    out +=
        escape ? static_cast<char>(hex_value(text[i + 1]) * 16 + hex_value(text[i + 2])) : text[i];
    if (escape) i += 2;
  }
  return out;
}

// Whether a path, as it is, leads elsewhere than its segments say.
bool is_plain(std::string_view path, bool strip_parameters) {
  if (path.find_first_of(std::string_view("\\\0", 2)) != std::string_view::npos) return false;
  for (std::string_view rest = path.substr(1);;) {
    const std::size_t slash = std::min(rest.find('/'), rest.size());
    std::string_view segment = rest.substr(0, slash);
    const bool last = slash == rest.size();
    const bool empty = segment.empty();
    if (strip_parameters) segment = segment.substr(0, segment.find(';'));
    if (segment == "." || segment == ".." || (segment.empty() && !(last && empty))) return false;
    if (last) return true;
    rest.remove_prefix(slash + 1);
  }
}

void check_target(std::string_view text) {
  const auto target = canonical_target(text);
  if (!target) {
    VERIFY(!target.error().message().empty());
    return;
  }
  VERIFY(canonical_target(target->text()).value() == *target);
  VERIFY(target->text().size() <= kMaxTarget);
  for (const char c : target->text()) VERIFY(static_cast<unsigned char>(c) > 0x20 && c != 0x7f);
  VERIFY(target->query.empty() || target->query[0] == '?');
  VERIFY(text.ends_with(target->query));
  const std::string& path = target->path;
  if (path == "*") return;
  VERIFY(path.starts_with('/') && path.find_first_of("?#\"<>^`{|}") == std::string::npos);
  for (const char c : path) VERIFY(static_cast<unsigned char>(c) < 0x80);
  // However often somebody decodes it, and whether he knows parameters, it leads to the same place.
  std::string seen = path;
  for (;;) {
    VERIFY(is_plain(seen, false) && is_plain(seen, true));
    std::string next = decoded(seen);
    VERIFY(std::count(next.begin(), next.end(), '/') == std::count(path.begin(), path.end(), '/'));
    if (next == seen) break;
    seen = std::move(next);
  }
  VERIFY(PathPattern::parse("/**")->matches(path));
  // A path is a pattern for itself, and for no longer one.
  if (path.find('*') == std::string::npos && path.size() <= kMaxPathPattern) {
    const auto itself = PathPattern::parse(path);
    VERIFY(itself.has_value() && itself->matches(path));
    VERIFY(!itself->matches(path + "a") && !itself->matches(path + "/a"));
  }
}

void check_pattern(std::string_view text, std::string_view path) {
  const auto pattern = PathPattern::parse(text);
  if (!pattern) {
    VERIFY(!pattern.error().message().empty());
    return;
  }
  VERIFY(pattern->text() == text && PathPattern::parse(text).value() == *pattern);
  VERIFY(!pattern->matches("*"));
  const auto target = canonical_target(path);
  if (!target || target->path == "*") return;
  // What a pattern takes it takes below "**" too.
  const auto below = PathPattern::parse("/**" + std::string(text));
  if (below && pattern->matches(target->path))
    VERIFY(below->matches(target->path) && below->matches("/a" + target->path));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  check_target(rest);
  std::string_view before;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    check_target(line);
    check_pattern(before, line);
    before = line;
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  }
  return 0;
}
