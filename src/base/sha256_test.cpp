#include "base/sha256.h"

#include <gtest/gtest.h>

#include "base/encoding.h"

namespace caisson {
namespace {

std::string digest(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

// The standard's own examples.
TEST(Sha256, GivesTheDigestsOfTheStandard) {
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveTheSameAsTheWhole) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) bytes += static_cast<char>(i);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    Sha256 pieces;
    for (std::size_t at = 0; at < size; at += 7) {
      pieces.update(std::string_view(bytes).substr(at, std::min<std::size_t>(7, size - at)));
    }
    ASSERT_EQ(pieces.finish(), digest(std::string_view(bytes).substr(0, size))) << size;
  }
}

TEST(Sha256, EveryWayOfComputingGivesTheSame) {
  // The first 64 KiB go one way, the rest another where the processor has instructions for it.
  std::string bytes;
  for (std::uint32_t i = 0; i < 300'000; ++i) bytes += static_cast<char>(i * i >> 3);
  const std::string whole = digest(bytes);
  for (std::size_t piece : {64ul, 1000ul, 65'536ul, 100'003ul}) {
    Sha256 pieces;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      pieces.update(std::string_view(bytes).substr(at, piece));
    }
    EXPECT_EQ(pieces.finish(), whole) << piece;
  }
}

TEST(Sha256, KnowsADigestWhenItSeesOne) {
  EXPECT_TRUE(is_sha256(digest("")));
  EXPECT_FALSE(is_sha256(""));
  EXPECT_FALSE(is_sha256(std::string(64, 'A')));
  EXPECT_FALSE(is_sha256(std::string(63, 'a')));
  EXPECT_FALSE(is_sha256(std::string(62, 'a') + "/."));
}

// RFC 4231, cases 1, 2 and 6 (a key longer than a block).
TEST(Hmac, GivesTheTagsOfTheStandard) {
  const auto tag = [](std::string_view key, std::string_view message) {
    return hex_encode(hmac_sha256(key, message));
  };
  EXPECT_EQ(tag(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(tag("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(tag(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

}  // namespace
}  // namespace caisson
