// The thread that uncompresses: it gives what Uncompressed gives, and ends whenever its owner does.
#include "image/worker/uncompress_ahead.h"

#include <gmock/gmock.h>

#include <string>

#include "image/flatten_for_test.h"

namespace caisson::image {
namespace {

using testing::TextInput;

std::unique_ptr<UncompressAhead> start() {
  return UncompressAhead::start([] { return Status(); }).value();
}

// Bytes that are no run of one value, so that pieces in a wrong order are seen.
std::string some_bytes(std::size_t size) {
  std::string bytes(size, '\0');
  std::uint32_t state = 1;
  for (char& c : bytes) {
    state = state * 1664525 + 1013904223;
    c = static_cast<char>(state >> 24);
  }
  return bytes;
}

struct Read {
  std::string bytes, digest;
  Status end;
};

Read read_all(TarBytes& layer) {
  Read read;
  for (;;) {
    auto piece = layer.read();
    if (!piece.has_value()) {
      read.end = fail(std::move(piece).error());
      return read;
    }
    if (piece->empty()) break;
    read.bytes += *piece;
  }
  read.digest = layer.digest();
  return read;
}

Read read_directly(std::string_view bytes) {
  TextInput input(bytes);
  Uncompressed layer(input, 1000);
  return read_all(layer);
}

TEST(UncompressAhead, GivesLayerAfterLayer) {
  const auto ahead = start();
  // Less than a piece, exactly one and several, more than the ring holds.
  for (const std::size_t size : {0ul, 1ul, 10ul, 131'072ul, 1'000'000ul, 5'000'000ul}) {
    const std::string bytes = some_bytes(size), packed = testing::gzip(bytes);
    TextInput input(packed);
    ahead->begin(input, 1000);
    const Read read = read_all(*ahead);
    ASSERT_TRUE(read.end.has_value()) << read.end.error().message();
    EXPECT_TRUE(read.bytes == bytes) << size;
    EXPECT_EQ(read.digest, read_directly(packed).digest);
  }
}

TEST(UncompressAhead, DamageComesAfterWhatWasWhole) {
  std::string packed = testing::gzip(some_bytes(2'000'000));
  packed.resize(packed.size() / 2);
  const Read direct = read_directly(packed);
  ASSERT_FALSE(direct.end.has_value());
  const auto ahead = start();
  TextInput input(packed);
  ahead->begin(input, 1000);
  const Read read = read_all(*ahead);
  ASSERT_FALSE(read.end.has_value());
  EXPECT_EQ(read.end.error().message(), direct.end.error().message());
  EXPECT_TRUE(read.bytes == direct.bytes);
}

class FailingInput final : public ArchiveInput {
 public:
  Result<std::string_view> read() override { return fail(Error::unavailable("the wire is cut")); }
};

TEST(UncompressAhead, PassesOnTheInputsError) {
  const auto ahead = start();
  FailingInput input;
  ahead->begin(input, 1000);
  auto read = ahead->read();
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code(), Code::kUnavailable);
  EXPECT_EQ(read.error().message(), "the wire is cut");
}

TEST(UncompressAhead, AThreadThatCannotConfineItselfReadsNothing) {
  const auto ahead =
      UncompressAhead::start([] { return Status(fail(Error::internal("no filter"))); }).value();
  const std::string bytes = some_bytes(100);
  TextInput input(bytes);
  ahead->begin(input, 1000);
  auto read = ahead->read();
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().message(), "no filter");
}

TEST(UncompressAhead, EndsWhereNobodyReadsOn) {
  const std::string bytes = some_bytes(5'000'000);
  TextInput input(bytes);
  const auto ahead = start();
  ahead->begin(input, 1000);
  ASSERT_TRUE(ahead->read().has_value());
}

}  // namespace
}  // namespace caisson::image
