#include "image/layer_record.h"

#include <gtest/gtest.h>

namespace caisson::image {
namespace {

LayerRecord some_record() {
  LayerRecord record;
  record[""] = {.inode = 1, .mode = 040755};
  record["etc/hosts"] = {.inode = ~0ull,
                         .mode = 0100644,
                         .uid = 65535,
                         .gid = 7,
                         .size = 1ull << 40,
                         .mtime_s = -5,
                         .mtime_ns = 999'999'999};
  record["a\nb"] = {.inode = 3, .mode = 040700, .opaque = true};
  return record;
}

TEST(LayerRecord, ComesBackAsItWas) {
  EXPECT_EQ(decode_record(encode_record(some_record())).value(), some_record());
  EXPECT_TRUE(decode_record(encode_record({})).value().empty());
}

TEST(LayerRecord, RefusesWhatIsCutOrMoreThanOne) {
  const std::string bytes = encode_record(some_record());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto cut = decode_record(std::string_view(bytes).substr(0, size));
    // A cut between two entries is a record of fewer.
    if (cut.has_value()) {
      EXPECT_LT(cut->size(), some_record().size());
    } else {
      EXPECT_EQ(cut.error().code(), Code::kDataLoss);
    }
  }
  EXPECT_FALSE(decode_record("CLR2").has_value());
  // A path twice.
  EXPECT_FALSE(decode_record(bytes + bytes.substr(4)).has_value());
}

TEST(LayerRecord, RefusesAFlagThatIsNone) {
  std::string bytes = encode_record({{"x", RecordedEntry{.inode = 1}}});
  bytes.back() = '\2';
  EXPECT_FALSE(decode_record(bytes).has_value());
}

}  // namespace
}  // namespace caisson::image
