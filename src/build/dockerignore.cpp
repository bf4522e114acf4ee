#include "build/dockerignore.h"

#include "build/dockerfile.h"
#include "build/words.h"
#include "image/reference.h"

namespace caisson::build {
namespace {

// The set behind '[', up to its ']'; `at` is moved behind it.
Result<std::bitset<256>> read_set(std::string_view text, std::size_t& at) {
  const auto broken = [&] {
    return fail(Error::invalid("the pattern '" + image::printable(text, 80) +
                               "' has a '[' whose set is empty or not closed by ']'"));
  };
  std::bitset<256> set;
  bool negated = false;
  if (at < text.size() && text[at] == '^') {
    negated = true;
    ++at;
  }
  const auto character = [&]() -> int {
    if (at >= text.size()) return -1;
    if (text[at] == '\\' && ++at >= text.size()) return -1;
    return static_cast<unsigned char>(text[at++]);
  };
  bool any = false;
  while (at < text.size() && (text[at] != ']' || !any)) {
    if (text[at] == ']') return broken();
    const int low = character();
    int high = low;
    if (at < text.size() && text[at] == '-') {
      ++at;
      if (at < text.size() && text[at] == ']') return broken();
      high = character();
    }
    if (low < 0 || high < low) return broken();
    for (int c = low; c <= high; ++c) set.set(static_cast<std::size_t>(c));
    any = true;
  }
  if (at >= text.size() || !any) return broken();
  ++at;
  if (negated) set.flip();
  set.reset('/');
  return set;
}

}  // namespace

Result<Pattern> Pattern::compile(std::string_view text, Scope scope) {
  if (text.size() > kMaxPattern)
    return fail(Error::invalid("a pattern of more than " + std::to_string(kMaxPattern) + " bytes"));
  Pattern made;
  for (std::size_t at = 0; at < text.size();) {
    Token token;
    const char c = text[at++];
    if (c == '*') {
      const bool twice = at < text.size() && text[at] == '*';
      while (at < text.size() && text[at] == '*') ++at;
      if (!twice || scope == Scope::kName) {
        token.kind = Kind::kStar;
      } else if (at < text.size() && text[at] == '/') {
        ++at;
        token.kind = Kind::kFolders;
      } else {
        token.kind = Kind::kEverything;
      }
    } else if (c == '?') {
      token.kind = Kind::kAny;
    } else if (c == '[') {
      TRY_ASSIGN(const std::bitset<256> set, read_set(text, at));
      token.kind = Kind::kSet;
      token.set = static_cast<std::uint16_t>(made.sets_.size());
      made.sets_.push_back(set);
    } else {
      token.character = c;
      if (c == '\\') {
        if (at == text.size())
          return fail(Error::invalid("the pattern '" + image::printable(text, 80) +
                                     "' ends with a backslash"));
        token.character = text[at++];
      }
    }
    if (token.kind != Kind::kCharacter) made.plain_ = false;
    made.tokens_.push_back(token);
  }
  return made;
}

// States that are reached without a character.
void Pattern::follow(std::vector<bool>& states) const {
  for (std::size_t at = 0; at < tokens_.size(); ++at)
    if (states[at] && (tokens_[at].kind == Kind::kStar || tokens_[at].kind == Kind::kEverything ||
                       tokens_[at].kind == Kind::kFolders))
      states[at + 1] = true;
}

bool Pattern::matches(std::string_view path) const {
  // State i: the first i tokens are matched; and of kFolders, inside[i]: amid the folders' names.
  std::vector<bool> states(tokens_.size() + 1), next(tokens_.size() + 1);
  std::vector<bool> inside(tokens_.size()), inside_next(tokens_.size());
  states[0] = true;
  follow(states);
  for (const char c : path) {
    next.assign(next.size(), false);
    inside_next.assign(inside_next.size(), false);
    for (std::size_t at = 0; at < tokens_.size(); ++at) {
      if (!states[at] && !inside[at]) continue;
      const Token& token = tokens_[at];
      switch (token.kind) {
        case Kind::kCharacter:
          if (c == token.character) next[at + 1] = true;
          break;
        case Kind::kAny:
          if (c != '/') next[at + 1] = true;
          break;
        case Kind::kSet:
          if (sets_[token.set].test(static_cast<unsigned char>(c))) next[at + 1] = true;
          break;
        case Kind::kStar:
          if (c != '/') next[at] = true;
          break;
        case Kind::kEverything:
          next[at] = true;
          break;
        case Kind::kFolders:
          if (c == '/') next[at + 1] = true;
          inside_next[at] = true;
          break;
      }
    }
    follow(next);
    states.swap(next);
    inside.swap(inside_next);
  }
  return states.back();
}

std::string clean_path(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view part = path.substr(0, slash);
    path.remove_prefix(slash == std::string_view::npos ? path.size() : slash + 1);
    if (part.empty() || part == ".") continue;
    if (part != "..") {
      parts.push_back(part);
    } else if (!parts.empty()) {
      parts.pop_back();
    }
  }
  std::string clean;
  for (const std::string_view part : parts) {
    if (!clean.empty()) clean += '/';
    clean += part;
  }
  return clean;
}

Result<IgnoreRules> IgnoreRules::parse(std::string_view text, std::string_view name) {
  if (text.size() > kMaxIgnoreFile)
    return fail(Error::exhausted(std::string(name) + " is longer than " +
                                 std::to_string(kMaxIgnoreFile) + " bytes"));
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  IgnoreRules rules;
  std::uint32_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.starts_with('#')) continue;
    line = trim(line);
    if (line.empty()) continue;
    Rule rule;
    if (line.starts_with('!')) {
      rule.exception = true;
      line = trim(line.substr(1));
    }
    const std::string clean = clean_path(line);
    if (clean.empty()) {
      // "." and "/": the root itself, of which nothing is left out.
      if (!line.empty()) continue;
      return fail(at_line(name, number, Error::invalid("a '!' without a pattern")));
    }
    if (rules.rules_.size() == kMaxIgnorePatterns)
      return fail(at_line(
          name, number,
          Error::exhausted("more than " + std::to_string(kMaxIgnorePatterns) + " patterns")));
    auto pattern = Pattern::compile(clean, Pattern::Scope::kPath);
    if (!pattern.has_value()) return fail(at_line(name, number, std::move(pattern).error()));
    rule.pattern = std::move(*pattern);
    rules.exceptions_ = rules.exceptions_ || rule.exception;
    rules.rules_.push_back(std::move(rule));
  }
  return rules;
}

bool IgnoreRules::ignored(std::string_view path) const {
  bool out = false;
  for (const Rule& rule : rules_) {
    // Whether it would change anything.
    if (rule.exception != out) continue;
    bool matches = rule.pattern.matches(path);
    for (std::size_t slash = path.rfind('/'); !matches && slash != std::string_view::npos;
         slash = slash == 0 ? std::string_view::npos : path.rfind('/', slash - 1))
      matches = rule.pattern.matches(path.substr(0, slash));
    if (matches) out = !rule.exception;
  }
  return out;
}

}  // namespace caisson::build
