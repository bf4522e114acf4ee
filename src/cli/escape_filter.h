// Terminal output of a program that nobody vouches for, made safe to show.
//
// Kept: printable text (UTF-8), line breaks, tab, backspace, bell, colours and text attributes,
// cursor movement, erasing, hiding and showing the cursor. Dropped: everything by which output can
// act beyond the screen: clipboard and title (OSC), device control and other strings (DCS, SOS, PM,
// APC), questions that the terminal answers as if the user typed (DSR, DA, ENQ, window reports),
// modes, character sets, resets, and control characters in their eight-bit forms. Invalid UTF-8
// becomes U+FFFD, since a terminal may read stray bytes as controls. A sequence is only passed on
// once it is whole, so two filters may write to one terminal.
//
// One per stream. State is a few bytes and bounded, whatever comes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace caisson::cli {

class EscapeFilter {
 public:
  // The part of `bytes`, and of what was held back before, that may be shown now.
  std::string filter(std::string_view bytes);
  // What ends the stream: U+FFFD for a broken last character, and sequences that undo colours and a
  // hidden cursor.
  std::string finish();

 private:
  enum class State : std::uint8_t {
    kText,
    kCharacter,     // inside a multi-byte character
    kEscape,        // after ESC
    kIntermediate,  // after ESC and an intermediate byte: one final byte comes
    kSequence,      // CSI
    kLongSequence,  // CSI beyond any length that we pass on
    kString,        // OSC, DCS, SOS, PM, APC: to its end
    kStringEscape,  // ESC inside one
  };

  void take(unsigned char byte, std::string& out);
  void take_text(unsigned char byte, std::string& out);
  bool take_character(unsigned char byte, std::string& out);
  void take_escape(unsigned char byte, std::string& out);
  void take_sequence(unsigned char byte, std::string& out);
  void end_sequence(unsigned char final, std::string& out);

  State state_ = State::kText;
  std::string held_;         // the bytes of an unfinished character or sequence
  std::uint8_t wanted_ = 0;  // continuation bytes that still come
  bool coloured_ = false;
  bool hidden_ = false;
};

}  // namespace caisson::cli
