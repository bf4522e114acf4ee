// The text forms of what the store keeps.
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "image/store_types.h"

namespace caisson::image {
namespace {

std::string hex(char digit) {
  return std::string(64, digit);
}

LayerRef layer(char digit) {
  return {.blob = {.media_type = "application/x; q=1", .digest = hex(digit), .size = 7},
          .diff_id = hex(digit)};
}

std::string sha256(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.finish();
}

// No text that is cut off, extended or changed in one line may be taken.
template <typename Record>
void expect_strict(const std::string& text) {
  ASSERT_TRUE(Record::decode(text).has_value()) << Record::decode(text).error().message();
  EXPECT_FALSE(Record::decode("").has_value());
  EXPECT_FALSE(Record::decode("x" + text).has_value());
  EXPECT_FALSE(Record::decode(text + "x").has_value());
  EXPECT_FALSE(Record::decode(text.substr(0, text.size() - 1)).has_value());
  EXPECT_EQ(Record::decode("").error().code(), Code::kDataLoss);
}

// Every line but the header, left out.
template <typename Record>
void expect_every_line_needed(const std::string& text) {
  for (std::size_t at = text.find('\n') + 1; at < text.size();) {
    const std::size_t end = text.find('\n', at) + 1;
    std::string without = text;
    without.erase(at, end - at);
    EXPECT_FALSE(Record::decode(without).has_value()) << text.substr(at, end - at);
    at = end;
  }
}

TEST(ChainId, IsThatOfTheImageSpecification) {
  EXPECT_EQ(chain_id({}), sha256(""));
  EXPECT_EQ(chain_id({layer('a')}), hex('a'));
  const std::string two = sha256("sha256:" + hex('a') + " sha256:" + hex('b'));
  EXPECT_EQ(chain_id({layer('a'), layer('b')}), two);
  EXPECT_EQ(chain_id({layer('a'), layer('b'), layer('c')}),
            sha256("sha256:" + two + " sha256:" + hex('c')));
  EXPECT_NE(chain_id({layer('b'), layer('a')}), two);
}

TEST(RootfsInfoText, ComesBackAndIsStrict) {
  const RootfsInfo info{.chain = hex('a'),
                        .form = RootfsForm::kErofs,
                        .ids = {.layout = IdLayout::kSubuid,
                                .uid_base = 1,
                                .gid_base = 2,
                                .own_uid = 3,
                                .own_gid = 4},
                        .entries = 5,
                        .bytes = 6,
                        .disk_bytes = 7};
  const std::string text = info.encode();
  const RootfsInfo back = RootfsInfo::decode(text).value();
  EXPECT_EQ(back.chain, info.chain);
  EXPECT_EQ(back.form, info.form);
  EXPECT_EQ(back.ids, info.ids);
  EXPECT_EQ(back.entries, 5u);
  EXPECT_EQ(back.bytes, 6u);
  EXPECT_EQ(back.disk_bytes, 7u);
  expect_strict<RootfsInfo>(text);
  expect_every_line_needed<RootfsInfo>(text);
  for (const auto& [from, to] :
       {std::pair{"subuid", "abcdef"}, std::pair{"erofs", "ext4f"},
        std::pair{"own-uid 3", "own-uid -3"}, std::pair{"uid-base 1", "uid-base 4294967296"},
        std::pair{"bytes 6", "bytes 6x"}}) {
    std::string wrong = text;
    wrong.replace(wrong.find(from), std::string_view(from).size(), to);
    EXPECT_FALSE(RootfsInfo::decode(wrong).has_value()) << to;
  }
}

TEST(RootfsInfoText, OfADeltaNamesWhatItLiesOver) {
  const RootfsInfo info{.chain = hex('a'), .below = hex('b')};
  const std::string text = info.encode();
  EXPECT_EQ(RootfsInfo::decode(text).value().below, hex('b'));
  expect_strict<RootfsInfo>(text);
  expect_every_line_needed<RootfsInfo>(text);
  // What knows whole ones alone does not take it for one.
  EXPECT_FALSE(text.starts_with("caisson-rootfs 1\n"));
  EXPECT_EQ(RootfsInfo::decode(RootfsInfo{.chain = hex('a')}.encode()).value().below, "");
  std::string wrong = text;
  wrong.replace(wrong.find(hex('b')), 64, "../../elsewhere");
  EXPECT_FALSE(RootfsInfo::decode(wrong).has_value());
}

TEST(ImageRecordText, ComesBackAndIsStrict) {
  ImageRecord record{
      .id = hex('1'), .chain = {}, .manifest = hex('2'), .config_size = 9, .layers = {}};
  record.layers = {layer('a'), layer('b')};
  record.chain = chain_id(record.layers);
  const std::string text = record.encode();
  const ImageRecord back = ImageRecord::decode(text).value();
  EXPECT_EQ(back.id, record.id);
  EXPECT_EQ(back.chain, record.chain);
  EXPECT_EQ(back.manifest, record.manifest);
  EXPECT_EQ(back.config_size, 9u);
  EXPECT_EQ(back.layers, record.layers);
  EXPECT_EQ(back.layer_bytes(), 14u);
  expect_strict<ImageRecord>(text);
  record.manifest.clear();
  EXPECT_EQ(ImageRecord::decode(record.encode()).value().manifest, "");
  expect_every_line_needed<ImageRecord>(record.encode());
  record.layers.clear();
  EXPECT_FALSE(ImageRecord::decode(record.encode()).has_value()) << "another chain's layers";
}

TEST(ImageRecordText, MalformedLayersAreRefused) {
  const std::string head =
      "caisson-image 2\nid " + hex('1') + "\nchain " + hex('a') + "\nconfig-size 9\n";
  ASSERT_TRUE(
      ImageRecord::decode(head + "layer " + hex('a') + " 7 " + hex('a') + " type\n").has_value());
  for (const std::string& line : {"layer", "layer ", "layer x 7 y type"}) {
    EXPECT_FALSE(ImageRecord::decode(head + line + "\n").has_value()) << line;
  }
  for (const std::string& line :
       {hex('a') + " 7 " + hex('a'), hex('a') + " 7 " + hex('a') + " ",
        hex('a') + " x " + hex('a') + " type", hex('A') + " 7 " + hex('a') + " type",
        hex('a') + " 7 " + hex('b') + " type"}) {
    EXPECT_FALSE(ImageRecord::decode(head + "layer " + line + "\n").has_value()) << line;
  }
}

TEST(ReferenceText, ComesBackAndIsStrict) {
  const ReferenceRecord record{.image_id = hex('c'), .set_at = -5};
  const ReferenceRecord back = ReferenceRecord::decode(record.encode()).value();
  EXPECT_EQ(back.image_id, record.image_id);
  EXPECT_EQ(back.set_at, -5);
  expect_strict<ReferenceRecord>(record.encode());
  expect_every_line_needed<ReferenceRecord>(record.encode());
}

TEST(ReferenceText, TheFirstFormatIsToldApart) {
  const std::string text = "caisson-image-reference 1\ndigest " + hex('d') + "\nimported 1\n";
  const auto record = ReferenceRecord::decode(text);
  ASSERT_FALSE(record.has_value());
  EXPECT_EQ(record.error().code(), Code::kFailedPrecondition);
  EXPECT_NE(record.error().message().find("import it again"), std::string::npos);
  EXPECT_EQ(first_format_digest(text), hex('d'));
  EXPECT_EQ(first_format_digest(ReferenceRecord{.image_id = hex('c')}.encode()), "");
  EXPECT_EQ(first_format_digest(""), "");
  EXPECT_EQ(first_format_bytes("caisson-image 1\ndigest x\nbytes 12\n"), 12u);
  EXPECT_EQ(first_format_bytes("caisson-image 1\n"), 0u);
  EXPECT_EQ(first_format_bytes("rubbish"), 0u);
}

TEST(CacheText, ComesBackAndIsStrict) {
  const CacheRecord record{.image_id = hex('e')};
  EXPECT_EQ(CacheRecord::decode(record.encode()).value().image_id, record.image_id);
  expect_strict<CacheRecord>(record.encode());
  expect_every_line_needed<CacheRecord>(record.encode());
}

}  // namespace
}  // namespace caisson::image
