// Patterns over the paths of a build's context: `.dockerignore`, and wildcards in COPY.
//
// A line of `.dockerignore` is a pattern; `#` at its beginning makes it a comment, `!` an exception
// to what stands above it, and the last pattern that matches a path or a folder above it decides.
// `*` and `?` stand for characters other than '/', `[a-z]` and `[^a-z]` for one of a set, `**` for
// any number of folders, and the backslash takes the next character as it is. A pattern begins at
// the context's root with or without a leading '/'. Pure, bounded, without backtracking; fuzzed
// (fuzz/dockerignore_fuzz).
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::build {

inline constexpr std::size_t kMaxIgnoreFile = 1 << 20;
inline constexpr std::size_t kMaxIgnorePatterns = 4096;
inline constexpr std::size_t kMaxPattern = 4096;

class Pattern {
 public:
  // kPath: `**` crosses folders. kName: of one component, where `**` is `*`.
  enum class Scope { kPath, kName };
  // Error: invalid (a set that is not closed, nothing behind a backslash, too long).
  static Result<Pattern> compile(std::string_view text, Scope scope);
  // `path` is relative, without '.' and '..'.
  bool matches(std::string_view path) const;
  // Whether there is anything but plain characters in it.
  bool is_plain() const { return plain_; }

 private:
  enum class Kind : std::uint8_t { kCharacter, kAny, kSet, kStar, kFolders, kEverything };
  struct Token {
    Kind kind = Kind::kCharacter;
    char character = 0;
    std::uint16_t set = 0;  // index of sets_
  };
  void follow(std::vector<bool>& states) const;

  std::vector<Token> tokens_;
  std::vector<std::bitset<256>> sets_;
  bool plain_ = true;
};

// What a path is after '.', '..' and doubled slashes are worked out; never goes above the root.
std::string clean_path(std::string_view path);

class IgnoreRules {
 public:
  // Error: invalid with "NAME:LINE: "; exhausted.
  static Result<IgnoreRules> parse(std::string_view text, std::string_view name);
  // Whether `path` (relative to the context's root, clean) is left out.
  bool ignored(std::string_view path) const;
  // Something below an ignored folder may be an exception.
  bool has_exceptions() const { return exceptions_; }
  bool empty() const { return rules_.empty(); }

 private:
  struct Rule {
    Pattern pattern;
    bool exception = false;
  };
  std::vector<Rule> rules_;
  bool exceptions_ = false;
};

}  // namespace caisson::build
