// libraries: cli
// parser: src/cli/escape_filter.cpp
//
// Output of a program on its way to a terminal. However it is cut into pieces, the same comes out,
// and of that nothing but text, and sequences that move, erase or colour.
#include "cli/escape_filter.h"

#include "base/encoding.h"
#include "base/error.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file

std::string shown(std::string_view bytes, std::size_t piece) {
  cli::EscapeFilter filter;
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += piece)
    out += filter.filter(bytes.substr(at, piece));
  return out + filter.finish();
}

// Of a sequence that begins at `at`: where it ends.
std::size_t check_sequence(std::string_view text, std::size_t at) {
  VERIFY(at + 1 < text.size());
  if (text[at + 1] == '7' || text[at + 1] == '8') return at + 2;
  VERIFY(text[at + 1] == '[');
  const std::size_t end = text.find_first_not_of("0123456789;:?", at + 2);
  VERIFY(end != text.npos && end - at < 120);
  const std::string_view arguments = text.substr(at + 2, end - at - 2);
  // What a terminal answers is not among them: no n, c, t, and of modes the cursor's alone.
  if (arguments.contains('?')) {
    VERIFY(arguments == "?25" && (text[end] == 'h' || text[end] == 'l'));
  } else {
    VERIFY(std::string_view("@ABCDEFGHJKLMPSTXade`fgmsu").contains(text[end]));
  }
  return end + 1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string out = shown(bytes, size + 1);
  VERIFY(out == shown(bytes, 1) && out == shown(bytes, 3));
  VERIFY(is_utf8(out));
  for (std::size_t at = 0; at < out.size();) {
    const auto byte = static_cast<unsigned char>(out[at]);
    if (byte == 0x1b) {
      at = check_sequence(out, at);
      continue;
    }
    VERIFY(byte >= 0x20 || std::string_view("\n\r\t\b\a").contains(out[at]));
    VERIFY(byte != 0x7f);
    // No control in its eight-bit form.
    VERIFY(byte != 0xc2 || static_cast<unsigned char>(out[at + 1]) >= 0xa0);
    ++at;
  }
  // What has been made safe stays as it is.
  VERIFY(shown(out, out.size() + 1).starts_with(out));
  return 0;
}
