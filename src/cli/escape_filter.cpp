#include "cli/escape_filter.h"

namespace caisson::cli {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";
constexpr unsigned char kEscapeByte = 0x1b;
constexpr unsigned char kCancel = 0x18;
constexpr unsigned char kSubstitute = 0x1a;
constexpr unsigned char kBell = 0x07;
// Longer sequences are dropped: a true colour for text and ground with attributes has some 50.
constexpr std::size_t kLongestSequence = 96;

// Final bytes of CSI sequences without a private marker that only move, erase, insert or colour.
constexpr std::string_view kFinals = "@ABCDEFGHJKLMPSTXade`fgmsu";

// The first byte of a character of `count` further bytes; 0: not a first byte.
std::uint8_t continuation_count(unsigned char byte) {
  if (byte >= 0xc2 && byte <= 0xdf) return 1;
  if (byte >= 0xe0 && byte <= 0xef) return 2;
  if (byte >= 0xf0 && byte <= 0xf4) return 3;
  return 0;
}

// Whether the second byte keeps the character in range (no overlong form, surrogate, or beyond
// U+10FFFF).
bool second_fits(unsigned char first, unsigned char second) {
  if (first == 0xe0) return second >= 0xa0;
  if (first == 0xed) return second <= 0x9f;
  if (first == 0xf0) return second >= 0x90;
  if (first == 0xf4) return second <= 0x8f;
  return true;
}

}  // namespace

std::string EscapeFilter::filter(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + held_.size());
  for (const char c : bytes) take(static_cast<unsigned char>(c), out);
  return out;
}

std::string EscapeFilter::finish() {
  std::string out;
  if (state_ == State::kCharacter) out += kReplacement;
  if (coloured_) out += "\x1b[0m";
  if (hidden_) out += "\x1b[?25h";
  *this = EscapeFilter();
  return out;
}

void EscapeFilter::take(unsigned char byte, std::string& out) {
  switch (state_) {
    case State::kCharacter:
      if (take_character(byte, out)) return;
      take(byte, out);
      return;
    case State::kText:
      take_text(byte, out);
      return;
    case State::kEscape:
      take_escape(byte, out);
      return;
    case State::kIntermediate:
      if (byte >= 0x20 && byte <= 0x2f) return;
      state_ = byte == kEscapeByte ? State::kEscape : State::kText;
      return;
    case State::kSequence:
    case State::kLongSequence:
      take_sequence(byte, out);
      return;
    case State::kString:
      // A string that never ends must not hide all output that follows: a line break ends it too.
      if (byte == kEscapeByte) {
        state_ = State::kStringEscape;
      } else if (byte == kBell || byte == kCancel || byte == kSubstitute) {
        state_ = State::kText;
      } else if (byte == '\n') {
        state_ = State::kText;
        out += '\n';
      }
      return;
    case State::kStringEscape:
      if (byte == '\\') {
        state_ = State::kText;
      } else {
        take_escape(byte, out);
      }
      return;
  }
}

void EscapeFilter::take_text(unsigned char byte, std::string& out) {
  if (byte == kEscapeByte) {
    state_ = State::kEscape;
    return;
  }
  if (byte < 0x20) {
    if (byte == '\n' || byte == '\r' || byte == '\t' || byte == '\b' || byte == kBell)
      out += static_cast<char>(byte);
    return;
  }
  if (byte < 0x7f) {
    out += static_cast<char>(byte);
    return;
  }
  if (byte == 0x7f) return;
  wanted_ = continuation_count(byte);
  if (wanted_ == 0) {
    out += kReplacement;
    return;
  }
  held_ = static_cast<char>(byte);
  state_ = State::kCharacter;
}

// False: the character broke off, and `byte` is to be looked at anew.
bool EscapeFilter::take_character(unsigned char byte, std::string& out) {
  const bool first_of_rest = held_.size() == 1;
  if ((byte & 0xc0) != 0x80 ||
      (first_of_rest && !second_fits(static_cast<unsigned char>(held_[0]), byte))) {
    out += kReplacement;
    held_.clear();
    state_ = State::kText;
    return false;
  }
  held_ += static_cast<char>(byte);
  if (--wanted_ > 0) return true;
  // U+0080 to U+009F are controls: U+009B begins a sequence as ESC [ does.
  const bool control =
      held_.size() == 2 && held_[0] == '\xc2' && static_cast<unsigned char>(held_[1]) < 0xa0;
  if (!control) out += held_;
  held_.clear();
  state_ = State::kText;
  return true;
}

void EscapeFilter::take_escape(unsigned char byte, std::string& out) {
  state_ = State::kText;
  if (byte == '[') {
    held_.clear();
    state_ = State::kSequence;
  } else if (byte == ']' || byte == 'P' || byte == 'X' || byte == '^' || byte == '_') {
    state_ = State::kString;
  } else if (byte == '7' || byte == '8') {  // save and restore the cursor
    out += static_cast<char>(kEscapeByte);
    out += static_cast<char>(byte);
  } else if (byte >= 0x20 && byte <= 0x2f) {
    state_ = State::kIntermediate;
  } else if (byte == kEscapeByte) {
    state_ = State::kEscape;
  } else if (byte < 0x20 || byte > 0x7e) {
    take_text(byte, out);
  }
}

void EscapeFilter::take_sequence(unsigned char byte, std::string& out) {
  if (byte >= 0x40 && byte <= 0x7e) {
    const bool whole = state_ == State::kSequence;
    state_ = State::kText;
    if (whole) end_sequence(byte, out);
    held_.clear();
    return;
  }
  if (byte < 0x20 || byte > 0x7e) {
    // Terminals differ in what a control inside a sequence does; here it ends the sequence.
    held_.clear();
    state_ = State::kText;
    take_text(byte, out);
    return;
  }
  if (held_.size() == kLongestSequence) {
    state_ = State::kLongSequence;
  } else {
    held_ += static_cast<char>(byte);
  }
}

void EscapeFilter::end_sequence(unsigned char final, std::string& out) {
  bool allowed = kFinals.contains(static_cast<char>(final));
  if (held_ == "?25" && (final == 'h' || final == 'l')) {
    allowed = true;
    hidden_ = final == 'l';
  } else {
    for (const char c : held_)
      allowed = allowed && ((c >= '0' && c <= '9') || c == ';' || c == ':');
  }
  if (!allowed) return;
  if (final == 'm') coloured_ = !(held_.empty() || held_ == "0");
  out += "\x1b[";
  out += held_;
  out += static_cast<char>(final);
}

}  // namespace caisson::cli
