#include "cli/escape_filter.h"

#include <gtest/gtest.h>

#include <string>

namespace caisson::cli {
namespace {

using namespace std::string_literals;

std::string whole(std::string_view bytes) {
  EscapeFilter filter;
  std::string out = filter.filter(bytes);
  return out + filter.finish();
}

// The same bytes in every possible pair of pieces must give the same.
void expect_filtered(const std::string& bytes, const std::string& expected) {
  EXPECT_EQ(whole(bytes), expected);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    EscapeFilter filter;
    std::string out = filter.filter(std::string_view(bytes).substr(0, cut));
    out += filter.filter(std::string_view(bytes).substr(cut));
    EXPECT_EQ(out + filter.finish(), expected) << "cut at " << cut;
  }
}

TEST(EscapeFilter, TextColoursAndMovementStay) {
  expect_filtered("plain \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\r\n\t\b\a",
                  "plain \xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80\r\n\t\b\a");
  expect_filtered("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m");
  expect_filtered("\x1b[38:2::1:2:3mx\x1b[m", "\x1b[38:2::1:2:3mx\x1b[m");
  expect_filtered("\x1b[2K\x1b[1G\x1b[3A\x1b[10;20H\x1b[J",
                  "\x1b[2K\x1b[1G\x1b[3A\x1b[10;20H\x1b[J");
  expect_filtered(
      "\x1b"
      "7\x1b"
      "8",
      "\x1b"
      "7\x1b"
      "8");
}

TEST(EscapeFilter, ColoursAndAHiddenCursorAreUndoneAtTheEnd) {
  expect_filtered("\x1b[31mred", "\x1b[31mred\x1b[0m");
  expect_filtered("\x1b[?25lx", "\x1b[?25lx\x1b[?25h");
}

TEST(EscapeFilter, ClipboardTitleAndOtherStringsAreDropped) {
  expect_filtered("a\x1b]52;c;aGk=\ab", "ab");
  expect_filtered("a\x1b]0;title\x1b\\b", "ab");
  expect_filtered("a\x1b]8;;https://example.com\x1b\\link\x1b]8;;\x1b\\b", "alinkb");
  expect_filtered("a\x1bP$q\"p\x1b\\b", "ab");
  expect_filtered("a\x1bXs\x1b\\\x1b^p\x1b\\\x1b_a\x1b\\b", "ab");
}

TEST(EscapeFilter, AStringWithoutEndHidesNoLaterLine) {
  expect_filtered("a\x1b]0;title\nnext", "a\nnext");
  expect_filtered(
      "a\x1b]0;x\x18"
      "b",
      "ab");
  expect_filtered("a\x1b]0;x", "a");
}

TEST(EscapeFilter, QuestionsToTheTerminalAreDropped) {
  expect_filtered(
      "a\x1b[6n\x1b[c\x1b[>c\x1b[0x\x1b[21t\x1b[>q\x1b[?1$p\x1bZ\x05"
      "b",
      "ab");
}

TEST(EscapeFilter, ModesResetsAndCharacterSetsAreDropped) {
  expect_filtered(
      "a\x1b[?1000h\x1b[?2004h\x1b[?1049h\x1b[4h\x1b[?7l\x1b[!p\x1b"
      "c\x1b=\x1b>b",
      "ab");
  expect_filtered(
      "a\x1b(0\x1b)B\x1b#8\x0e\x0f\x1bN\x1bO"
      "b",
      "ab");
  expect_filtered(
      "a\x1b[5i\x1b[>1u\x1b[r"
      "b",
      "ab");
}

TEST(EscapeFilter, EightBitControlsAreNoWayAround) {
  expect_filtered(
      "a\xc2\x9b"
      "6nb",
      "a6nb");  // CSI as U+009B
  expect_filtered(
      "a\xc2\x9d"
      "0;t\ab",
      "a0;t\ab");  // OSC as U+009D
  expect_filtered(
      "a\x9b"
      "b",
      "a\xef\xbf\xbd"
      "b");
  expect_filtered(
      "a\xc2\xa0"
      "b",
      "a\xc2\xa0"
      "b");  // the first that is no control
}

TEST(EscapeFilter, BrokenCharactersAreReplaced) {
  expect_filtered(
      "a\xe2\x82"
      "b",
      "a\xef\xbf\xbd"
      "b");
  expect_filtered(
      "a\xff"
      "b",
      "a\xef\xbf\xbd"
      "b");
  expect_filtered("a\xe2\x82", "a\xef\xbf\xbd");
  expect_filtered("\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");  // a surrogate
  expect_filtered(
      "\xc0\x9b"
      "6n",
      "\xef\xbf\xbd\xef\xbf\xbd"
      "6n");                                            // an overlong ESC
  expect_filtered("\xe2\x1b]0;t\ax", "\xef\xbf\xbdx");  // a sequence inside a character
}

TEST(EscapeFilter, ControlsInsideASequenceEndIt) {
  expect_filtered("\x1b[3\n1mx", "\n1mx");
  expect_filtered("\x1b[\x1b]0;t\ax", "x");
  expect_filtered("\x1b\x1b[31mx\x1b[0m", "\x1b[31mx\x1b[0m");
  expect_filtered("\x1b]0;a\x1b[31mx", "\x1b[31mx\x1b[0m");
}

TEST(EscapeFilter, EndlessSequencesAreBounded) {
  expect_filtered("\x1b[" + std::string(1000, '1') + "mx", "x");
  expect_filtered("\x1b" + std::string(1000, ' ') + "Fx", "x");
}

TEST(EscapeFilter, NulAndDeleteAreDropped) {
  expect_filtered("a\0b\x7f"s, "ab");
}

// Whatever comes, no byte sequence that begins with ESC or an eight-bit control is passed on but
// those that the tests above allow.
TEST(EscapeFilter, NothingElseEverPasses) {
  std::uint32_t seed = 12345;
  const auto random = [&] { return seed = seed * 1664525 + 1013904223, seed >> 24; };
  static constexpr std::string_view kSpice =
      "\x1b[]P\\_^X?;0123456789mhlntcqp$!\x07\x18\xc2\x9b\x9d\xe2\n";
  for (int round = 0; round < 2000; ++round) {
    std::string bytes;
    for (int i = 0; i < 60; ++i)
      bytes += random() < 200 ? kSpice[random() % kSpice.size()] : static_cast<char>(random());
    const std::string out = whole(bytes);
    for (std::size_t i = 0; i < out.size(); ++i) {
      const auto byte = static_cast<unsigned char>(out[i]);
      ASSERT_FALSE(byte < 0x20 && !std::string_view("\n\r\t\b\a\x1b").contains(out[i]));
      ASSERT_FALSE(byte == 0xc2 && static_cast<unsigned char>(out[i + 1]) < 0xa0);
      if (byte != 0x1b) continue;
      if (out[i + 1] == '7' || out[i + 1] == '8') continue;
      ASSERT_EQ(out[i + 1], '[');
      const std::size_t end = out.find_first_not_of("0123456789;:?", i + 2);
      ASSERT_NE(end, std::string::npos);
      const std::string middle = out.substr(i + 2, end - i - 2);
      if (middle == "?25") {
        ASSERT_TRUE(out[end] == 'h' || out[end] == 'l');
      } else {
        ASSERT_FALSE(middle.contains('?'));
        ASSERT_TRUE(std::string_view("@ABCDEFGHJKLMPSTXade`fgmsu").contains(out[end]));
      }
    }
  }
}

}  // namespace
}  // namespace caisson::cli
