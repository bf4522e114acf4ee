#include "egress/secrets/json_span.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/encoding.h"
#include "egress/secrets/decoding.h"

namespace caisson::egress {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex_digit(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Which pointers lead through where the scanner is.
using Alive = std::vector<std::size_t>;

// Each step says whether it went well; the first that does not has said why.
class Scanner {
 public:
  Scanner(std::string_view text, std::span<const std::vector<std::string>> pointers)
      : text_(text), pointers_(pointers) {}

  bool run() {
    if (const std::size_t good = utf8_prefix(text_); good != text_.size()) {
      at_ = good;
      return refuse("it is not UTF-8");
    }
    Alive all(pointers_.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    if (!value(all, 0)) return false;
    return at_ == text_.size() || refuse("something stands behind it");
  }

  std::vector<JsonSpan> take_spans() { return std::move(spans_); }
  std::string refusal() const {
    return "byte " + std::to_string(at_ + 1) + " of the JSON body is wrong: " + std::string(why_);
  }

 private:
  bool refuse(std::string_view why) {
    why_ = why;
    return false;
  }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  void blanks() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\r' || peek() == '\n') ++at_;
  }

  // With the blanks around it. `depth` words of the pointers led here.
  bool value(const Alive& alive, std::size_t depth) {
    blanks();
    if (!bare_value(alive, depth)) return false;
    blanks();
    return true;
  }

  bool bare_value(const Alive& alive, std::size_t depth) {
    switch (peek()) {
      case '{':
        return object(alive, depth);
      case '[':
        return array(alive, depth);
      case '"':
        return string_value(alive, depth);
      case 't':
        return word("true");
      case 'f':
        return word("false");
      case 'n':
        return word("null");
      default:
        return number();
    }
  }

  bool word(std::string_view expected) {
    if (!text_.substr(at_).starts_with(expected)) return refuse("no value begins here");
    at_ += expected.size();
    return true;
  }

  bool digits() {
    if (!is_digit(peek())) return refuse("no value begins here, or a number lacks a digit");
    while (is_digit(peek())) ++at_;
    return true;
  }

  bool number() {
    take('-');
    if (take('0')) {
      if (is_digit(peek())) return refuse("a number begins with a zero");
    } else if (!digits()) {
      return false;
    }
    if (take('.') && !digits()) return false;
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      return digits();
    }
    return true;
  }

  bool string_value(const Alive& alive, std::size_t depth) {
    const std::size_t begin = at_ + 1;
    if (!string()) return false;
    for (const std::size_t pointer : alive) {
      if (pointers_[pointer].size() == depth) spans_.push_back({pointer, begin, at_ - 1});
    }
    return true;
  }

  // From quote to quote.
  bool string() {
    if (!take('"')) return refuse("a string should begin here");
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (static_cast<unsigned char>(c) < 0x20) return refuse("a string has a control character");
      if (c == '\\') {
        if (!escape()) return false;
      } else {
        ++at_;
      }
    }
    return refuse("a string does not end");
  }

  bool escape() {
    ++at_;
    const char c = peek();
    if (c != 'u') {
      if (c == '\0' || std::string_view("\"\\/bfnrt").find(c) == std::string_view::npos)
        return refuse("a string has an escape that is none");
      ++at_;
      return true;
    }
    unsigned code = 0;
    if (!code_unit(code)) return false;
    if (code >= 0xdc00 && code < 0xe000) return refuse("a string has half a surrogate pair");
    if (code < 0xd800 || code >= 0xe000) return true;
    if (!take('\\') || peek() != 'u') return refuse("a string has half a surrogate pair");
    if (!code_unit(code)) return false;
    if (code < 0xdc00 || code >= 0xe000) return refuse("a string has half a surrogate pair");
    return true;
  }

  // From the u on.
  bool code_unit(unsigned& code) {
    ++at_;
    code = 0;
    for (int i = 0; i < 4; ++i, ++at_) {
      const char c = peek();
      if (!is_hex_digit(c)) return refuse("a string has an escape that is none");
      code = code << 4 | static_cast<unsigned>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return true;
  }

  Alive led_on(const Alive& alive, std::size_t depth, std::string_view key) const {
    Alive on;
    for (const std::size_t pointer : alive) {
      if (pointers_[pointer].size() > depth && pointers_[pointer][depth] == key)
        on.push_back(pointer);
    }
    return on;
  }

  bool enter() {
    ++at_;
    if (++levels_ > kMostJsonDepth) return refuse("it has more than 64 levels");
    return true;
  }

  bool object(const Alive& alive, std::size_t depth) {
    if (!enter()) return false;
    // Ordered: keys are the sandbox's, which could choose them to collide.
    std::set<std::string> keys;
    blanks();
    if (!take('}')) {
      do {
        blanks();
        const std::size_t begin = at_ + 1;
        if (!string()) return false;
        std::string key = decode(text_.substr(begin, at_ - 1 - begin), Decoding::kJson).text;
        const Alive on = led_on(alive, depth, key);
        if (!keys.insert(std::move(key)).second) return refuse("a key stands in an object twice");
        blanks();
        if (!take(':')) return refuse("a colon should follow the key");
        if (!value(on, depth + 1)) return false;
      } while (take(','));
      if (!take('}')) return refuse("a comma or the object's end should follow");
    }
    --levels_;
    return true;
  }

  bool array(const Alive& alive, std::size_t depth) {
    if (!enter()) return false;
    blanks();
    if (!take(']')) {
      std::size_t index = 0;
      do {
        // Most arrays are on no pointer's way.
        const Alive on = alive.empty() ? Alive() : led_on(alive, depth, std::to_string(index));
        if (!value(on, depth + 1)) return false;
        ++index;
      } while (take(','));
      if (!take(']')) return refuse("a comma or the array's end should follow");
    }
    --levels_;
    return true;
  }

  std::string_view text_;
  std::span<const std::vector<std::string>> pointers_;
  std::size_t at_ = 0;
  std::size_t levels_ = 0;
  std::string_view why_;
  std::vector<JsonSpan> spans_;
};

}  // namespace

Result<std::vector<JsonSpan>> find_json_strings(
    std::string_view text, std::span<const std::vector<std::string>> pointers) {
  Scanner scanner(text, pointers);
  if (!scanner.run()) return fail(Error::invalid(scanner.refusal()));
  return scanner.take_spans();
}

}  // namespace caisson::egress
