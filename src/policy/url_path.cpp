#include "policy/url_path.h"

#include <algorithm>
#include <expected>
#include <optional>

#include "base/guards.h"
#include "policy/complain.h"

namespace caisson::policy {
namespace {

// What is read, or what is wrong with the text: part of a sentence.
template <typename T>
using Read = std::expected<T, std::string>;

std::unexpected<std::string> fault(std::string sentence) {
  return std::unexpected<std::string>(std::move(sentence));
}

constexpr std::string_view kAllowedTarget =
    "/PATH or /PATH?QUERY, at most 16384 bytes, in which a path can be read in one way only";

// A path in which more levels of escapes are nested than this is not read at all.
constexpr int kMaxNestedEscapes = 4;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_unreserved(char c) {
  return is_letter(c) || is_digit(c) || c == '-' || c == '.' || c == '_' || c == '~';
}
// RFC 3986's pchar, without escapes.
bool is_path_character(char c) {
  return is_unreserved(c) || std::string_view("!$&'()*+,;=:@").find(c) != std::string_view::npos;
}
bool is_control(char c) {
  return static_cast<unsigned char>(c) <= 0x20 || c == 0x7f;
}

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The byte of the escape that `text` begins with; nullopt where it begins with none.
std::optional<char> escaped(std::string_view text) {
  if (text.size() < 3 || text[0] != '%') return std::nullopt;
  const int high = hex_value(text[1]), low = hex_value(text[2]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high << 4 | low);
}

void append_escape(std::string& out, char c) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  const auto byte = static_cast<unsigned char>(c);
  out += '%';
  out += kHex[byte >> 4];
  out += kHex[byte & 15];
}

// What an escape must not stand for, at any depth: what parts or ends a path where it is decoded.
bool is_hidden_separator(char c) {
  return !guard_off(Guard::kPathSeparators) && (c == '/' || c == '\\' || c == '\0');
}

// The text in its one spelling: only what must be escaped is, in upper-case digits.
Read<std::string> respelled(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') return fault("it holds a backslash");
    if (c != '%') {
      if (is_path_character(c)) {
        out += c;
      } else {
        append_escape(out, c);
      }
      continue;
    }
    const auto byte = escaped(text.substr(i));
    if (!byte) return fault("a % is not followed by two hexadecimal digits");
    if (is_hidden_separator(*byte)) return fault("it holds " + quote(text.substr(i, 3)));
    if (is_unreserved(*byte) && !guard_off(Guard::kPathUnreserved)) {
      out += *byte;
    } else {
      append_escape(out, *byte);
    }
    i += 2;
  }
  return out;
}

// Whether some decoder takes bytes of this for another, shorter character: UTF-8 that spells an
// ASCII character or any other in more bytes than it needs.
bool has_overlong(std::string_view text) {
  for (std::size_t i = 0; i + 1 < text.size(); ++i) {
    const auto first = static_cast<unsigned char>(text[i]);
    const auto second = static_cast<unsigned char>(text[i + 1]);
    if ((second & 0xc0) != 0x80) continue;
    if (first == 0xc0 || first == 0xc1 || (first == 0xe0 && second < 0xa0) ||
        (first == 0xf0 && second < 0x90))
      return true;
  }
  return false;
}

bool is_dots(std::string_view segment) {
  return segment == "." || segment == "..";
}

// Whether it is empty or a dot segment for those to whom what follows a semicolon is no part of it.
bool hides_behind_parameters(std::string_view segment) {
  if (guard_off(Guard::kPathParameters)) return false;
  const std::size_t semicolon = segment.find(';');
  return semicolon == 0 ||
         (semicolon != std::string_view::npos && is_dots(segment.substr(0, semicolon)));
}

// What is wrong with a respelled segment for those who decode it, once or again and again; empty
// where nothing is.
std::string segment_fault(std::string_view segment) {
  if (hides_behind_parameters(segment)) return "a segment is empty or dots but for its parameters";
  if (guard_off(Guard::kPathNested)) return "";
  std::string text(segment);
  for (int level = 0; text.find('%') != std::string::npos; ++level) {
    std::string decoded;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto byte = escaped(std::string_view(text).substr(i));
      if (byte && (*byte == '.' || is_hidden_separator(*byte)))
        return "an escape in an escape hides a dot, a slash, a backslash or a NUL";
      decoded += byte.value_or(text[i]);
      if (byte) i += 2;
    }
    if (decoded == text) break;
    if (level == kMaxNestedEscapes) return "escapes in it are nested too deep";
    if (has_overlong(decoded)) return "it holds a UTF-8 sequence that is longer than it need be";
    if (hides_behind_parameters(decoded))
      return "a segment is empty or dots but for its parameters";
    text = std::move(decoded);
  }
  return "";
}

// The segments of a respelled absolute path with the dot segments resolved. Empty ones are kept:
// some servers drop them before they resolve dots and some behind that, so a ".." that would take
// one away is refused.
Read<std::vector<std::string_view>> resolved(std::string_view path) {
  std::vector<std::string_view> kept;
  for (std::size_t at = 1;;) {
    const std::size_t slash = std::min(path.find('/', at), path.size());
    const std::string_view segment = path.substr(at, slash - at);
    const bool last = slash == path.size();
    if (std::string wrong = segment_fault(segment); !wrong.empty()) return fault(std::move(wrong));
    if (segment == ".." && !guard_off(Guard::kPathDots)) {
      if (kept.empty()) return fault("its \"..\" leads above the root");
      if (kept.back().empty()) return fault("a \"..\" follows an empty segment");
      kept.pop_back();
    } else if (segment != ".") {
      kept.push_back(segment);
    }
    if (!last) {
      at = slash + 1;
      continue;
    }
    // "/a/." and "/a/.." are directories, as "/a/" is.
    if (is_dots(segment)) kept.emplace_back();
    return kept;
  }
}

// `text` begins with a slash.
Read<std::string> canonical_path(std::string_view text) {
  std::string spelled;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t slash = std::min(text.find('/', at), text.size());
    const auto segment = respelled(text.substr(at, slash - at));
    if (!segment) return segment;
    spelled += *segment;
    if (slash < text.size()) spelled += '/';
    at = slash + 1;
  }
  const auto segments = resolved(spelled);
  if (!segments) return fault(segments.error());
  std::string path;
  for (const std::string_view segment : *segments) {
    if (!segment.empty()) path.append("/").append(segment);
  }
  if (segments->back().empty()) path += '/';
  return path;
}

Read<Target> read_target(std::string_view text) {
  if (text.empty()) return fault("it is empty");
  if (text.size() > kMaxTarget) return fault("it is too long");
  const auto bad = std::find_if(text.begin(), text.end(), is_control);
  if (bad != text.end()) return fault("it holds " + quote(std::string_view(bad, 1)));
  if (text == "*") return Target{"*", ""};
  if (text[0] != '/') return fault("it does not begin with a slash");
  if (text.find('#') != std::string_view::npos) return fault("it holds a fragment");
  const std::size_t question = std::min(text.find('?'), text.size());
  auto path = canonical_path(text.substr(0, question));
  if (!path) return fault(std::move(path).error());
  Target target{std::move(*path), std::string(text.substr(question))};
  // Escapes may have made it longer.
  if (target.path.size() + target.query.size() > kMaxTarget) return fault("it is too long");
  return target;
}

constexpr std::string_view kAllowedPattern =
    "an absolute path in whose segments '*' is any number of characters, {a,b} one of the words, "
    "and of which a segment '**' is any number of segments; at most 1024 bytes, also with every "
    "alternative written out";

Error no_pattern(std::string_view text, std::string_view reason) {
  return Error::invalid(quote(text) + " is no pattern for paths: " + std::string(reason) +
                        "; allowed is " + std::string(kAllowedPattern));
}

// Every text that `segment` stands for with one word of each pair of braces.
Read<std::vector<std::string>> written_out(std::string_view segment) {
  std::vector<std::string> made = {""};
  while (!segment.empty()) {
    const std::size_t open = std::min(segment.find_first_of("{}"), segment.size());
    for (std::string& text : made) text += segment.substr(0, open);
    segment.remove_prefix(open);
    if (segment.empty()) break;
    const std::size_t close = segment.find_first_of("{}", 1);
    if (segment[0] == '}' || close == std::string_view::npos || segment[close] == '{')
      return fault("its braces do not come in pairs within one segment");
    std::string_view words = segment.substr(1, close - 1);
    std::vector<std::string> longer;
    for (bool more = true; more;) {
      const std::size_t comma = std::min(words.find(','), words.size());
      for (const std::string& text : made)
        longer.push_back(text + std::string(words.substr(0, comma)));
      more = comma < words.size();
      words.remove_prefix(std::min(comma + 1, words.size()));
      if (longer.size() > kMaxPathPattern) return fault("it has too many alternatives");
    }
    made = std::move(longer);
    segment.remove_prefix(close + 1);
  }
  return made;
}

// One alternative in the spelling of canonical paths, but for its stars.
Read<std::string> canonical_alternative(std::string_view text) {
  if (text.empty()) return fault("an alternative of it is an empty segment");
  if (text.find("**") != std::string_view::npos) return fault("'**' is not a whole segment of it");
  std::string made;
  for (std::size_t at = 0;;) {
    const std::size_t star = std::min(text.find('*', at), text.size());
    const auto literal = respelled(text.substr(at, star - at));
    if (!literal) return literal;
    made += *literal;
    if (star == text.size()) break;
    made += '*';
    at = star + 1;
  }
  if (is_dots(made)) return fault("a dot segment is in no path that is matched");
  if (std::string wrong = segment_fault(made); !wrong.empty()) return fault(std::move(wrong));
  return made;
}

// A star takes whole characters: an escape is never cut.
std::size_t character_size(std::string_view text) {
  return text[0] == '%' ? 3 : 1;
}

// Steps back to the last star alone, which is enough: what an earlier one could take more, the last
// one can. So the time is the product of both sizes at most.
bool matches_glob(std::string_view pattern, std::string_view text) {
  if (pattern == "*") return !text.empty();
  std::size_t at = 0, taken = 0, star = std::string_view::npos, begin = 0;
  while (taken < text.size()) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      begin = taken;
    } else if (at < pattern.size() && pattern[at] == text[taken]) {
      ++at;
      ++taken;
    } else if (star != std::string_view::npos) {
      begin += character_size(text.substr(begin));
      taken = begin;
      at = star + 1;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

}  // namespace

Result<Target> canonical_target(std::string_view origin_form) {
  auto target = read_target(origin_form);
  if (!target)
    return fail(Error::invalid("the target " + quote(origin_form) + " is refused: " +
                               target.error() + "; allowed is " + std::string(kAllowedTarget)));
  return std::move(*target);
}

Result<PathPattern::Segment> PathPattern::parse_segment(std::string_view text,
                                                        std::string_view whole) {
  if (text == "**") return Segment{.is_any_number = true, .alternatives = {}};
  auto alternatives = written_out(text);
  if (!alternatives) return fail(no_pattern(whole, alternatives.error()));
  for (std::string& alternative : *alternatives) {
    auto made = canonical_alternative(alternative);
    if (!made) return fail(no_pattern(whole, made.error()));
    alternative = std::move(*made);
  }
  return Segment{.is_any_number = false, .alternatives = std::move(*alternatives)};
}

Result<PathPattern> PathPattern::parse(std::string_view text) {
  if (!text.starts_with('/')) return fail(no_pattern(text, "it does not begin with a slash"));
  if (text.size() > kMaxPathPattern) return fail(no_pattern(text, "it is too long"));
  const auto bad = std::find_if(text.begin(), text.end(),
                                [](char c) { return is_control(c) || c == '?' || c == '#'; });
  if (bad != text.end())
    return fail(no_pattern(text, "it holds " + quote(std::string_view(bad, 1))));
  PathPattern pattern;
  pattern.text_ = text;
  std::size_t bytes = 0;
  for (std::size_t at = 1;;) {
    const std::size_t slash = std::min(text.find('/', at), text.size());
    const std::string_view segment = text.substr(at, slash - at);
    if (segment.empty() && slash < text.size())
      return fail(no_pattern(text, "a segment within it is empty"));
    if (segment.empty()) {
      pattern.segments_.push_back({.is_any_number = false, .alternatives = {""}});
      return pattern;
    }
    TRY_ASSIGN(Segment parsed, parse_segment(segment, text));
    for (const std::string& alternative : parsed.alternatives) bytes += alternative.size();
    if (bytes > kMaxPathPattern) return fail(no_pattern(text, "it has too many alternatives"));
    pattern.segments_.push_back(std::move(parsed));
    if (slash == text.size()) return pattern;
    at = slash + 1;
  }
}

bool PathPattern::matches(std::string_view canonical_path) const {
  if (!canonical_path.starts_with('/')) return false;
  // As matches_glob(), with segments for characters. `taken` is behind the slash of a segment; at
  // the end it is behind the path's last byte and one more.
  const std::size_t end = canonical_path.size() + 1;
  const auto segment_at = [&](std::size_t begin) {
    const std::size_t slash = std::min(canonical_path.find('/', begin), canonical_path.size());
    return canonical_path.substr(begin, slash - begin);
  };
  constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  std::size_t at = 0, taken = 1, any = kNone, begin = 1;
  while (taken < end) {
    const std::string_view segment = segment_at(taken);
    if (at < segments_.size() && segments_[at].is_any_number) {
      any = at++;
      begin = taken;
    } else if (at < segments_.size() &&
               std::any_of(
                   segments_[at].alternatives.begin(), segments_[at].alternatives.end(),
                   [&](const std::string& alternative) {
                     return matches_glob(alternative, segment);
                   })) {
      ++at;
      taken += segment.size() + 1;
    } else if (any != kNone) {
      begin += segment_at(begin).size() + 1;
      taken = begin;
      at = any + 1;
    } else {
      return false;
    }
  }
  return std::all_of(segments_.begin() + static_cast<std::ptrdiff_t>(at), segments_.end(),
                     [](const Segment& segment) { return segment.is_any_number; });
}

}  // namespace caisson::policy
