#include "base/proto.h"

#include <gtest/gtest.h>

#include <string>

namespace caisson::proto {
namespace {

std::string header_bytes(std::uint32_t length, std::uint32_t stream, std::uint8_t type,
                         std::uint8_t detail, std::uint16_t reserved) {
  std::uint8_t bytes[kHeaderSize];
  encode_header({length, stream, static_cast<FrameType>(type), detail, reserved}, bytes);
  return {reinterpret_cast<const char*>(bytes), sizeof(bytes)};
}

std::string error_of(const std::string& bytes) {
  Decoder decoder;
  decoder.feed(bytes);
  const Result<std::optional<Frame>> frame = decoder.next();
  return frame ? "" : frame.error().message();
}

TEST(Decoder, HandsOutFramesAsTheyComeByteByByte) {
  const std::string bytes = encode_frame(7, FrameType::kData, 1, "hello") +
                            encode_frame(9, FrameType::kOpen, 3, "") +
                            encode_credit(7, Channel::kErr, 5);
  Decoder decoder;
  std::vector<Frame> frames;
  for (const char byte : bytes) {
    decoder.feed(std::string_view(&byte, 1));
    Result<std::optional<Frame>> frame = decoder.next();
    ASSERT_TRUE(frame.has_value());
    if (*frame) frames.push_back(std::move(**frame));
  }
  ASSERT_EQ(frames.size(), 3u);
  EXPECT_EQ(frames[0].header.stream, 7u);
  EXPECT_EQ(frames[0].header.detail, 1);
  EXPECT_EQ(frames[0].payload, "hello");
  EXPECT_EQ(frames[1].header.type, FrameType::kOpen);
  EXPECT_EQ(frames[1].payload, "");
  EXPECT_EQ(parse_credit(frames[2].payload).value(), 5u);
  EXPECT_EQ(decoder.buffered(), 0u);
}

TEST(Decoder, KeepsItsBufferBounded) {
  Decoder decoder;
  const std::string frame = encode_frame(1, FrameType::kData, 0, std::string(1000, 'x'));
  for (int i = 0; i < 10'000; ++i) {
    decoder.feed(frame.substr(0, 500));
    ASSERT_FALSE(decoder.next().value().has_value());
    decoder.feed(frame.substr(500));
    ASSERT_TRUE(decoder.next().value().has_value());
  }
  EXPECT_EQ(decoder.buffered(), 0u);
}

TEST(Decoder, TakesTheLargestPayloadAndNotOneByteMore) {
  Decoder decoder;
  decoder.feed(encode_frame(1, FrameType::kData, 0, std::string(kMaxPayload, 'x')));
  EXPECT_EQ(decoder.next().value()->payload.size(), kMaxPayload);
  EXPECT_EQ(error_of(header_bytes(kMaxPayload + 1, 1, 3, 0, 0)),
            "frame: payload of 65537 bytes, at most 65536 are allowed");
}

TEST(Decoder, RefusesWhatIsNotAFrame) {
  EXPECT_EQ(error_of(header_bytes(0, 1, 0, 0, 0)), "frame: type 0, allowed are 1 to 8");
  EXPECT_EQ(error_of(header_bytes(0, 1, 9, 0, 0)), "frame: type 9, allowed are 1 to 8");
  EXPECT_EQ(error_of(header_bytes(0, 1, 3, 3, 0)), "frame: channel 3, allowed are 0 to 2");
  EXPECT_EQ(error_of(header_bytes(0, 1, 8, 1, 0)),
            "frame: detail 1 of a type 8 frame, which has none");
  EXPECT_EQ(error_of(header_bytes(0, 1, 3, 0, 1)), "frame: reserved bytes are 1, not zero");
}

TEST(Decoder, StaysBrokenAfterTheFirstBadFrame) {
  Decoder decoder;
  decoder.feed(header_bytes(0, 1, 99, 0, 0));
  ASSERT_FALSE(decoder.next().has_value());
  decoder.feed(encode_frame(1, FrameType::kData, 0, "fine"));
  const Result<std::optional<Frame>> again = decoder.next();
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().message(), "frame: type 99, allowed are 1 to 8");
}

TEST(Credit, IsFourBytesAndNeverZero) {
  EXPECT_EQ(parse_credit("abc").error().message(), "credit: payload of 3 bytes, it has 4");
  EXPECT_EQ(parse_credit(std::string(4, '\0')).error().message(),
            "credit: grants 0 bytes, at least 1 is allowed");
}

TEST(Version, IsTheLowerOfBothWhereBothStillUnderstandIt) {
  EXPECT_EQ(common_version(kVersion, kMinVersion).value(), kVersion);
  EXPECT_EQ(common_version(kVersion + 1, kVersion).value(), kVersion);
  EXPECT_EQ(common_version(kVersion + 5, kVersion + 4).error().code(), Code::kUnimplemented);
  EXPECT_EQ(common_version(kMinVersion - 1, 0).error().code(), Code::kUnimplemented);
  EXPECT_EQ(common_version(1, 2).error().code(), Code::kInvalidArgument);
}

TEST(Fields, ComeBackInOrder) {
  Fields fields;
  fields.put(Tag::kArg, "a").put_u8(Tag::kStdin, 1).put(Tag::kArg, "").put_u32(Tag::kSignal, 15);
  fields.put_u64(Tag::kSize, 0x0102030405060708);
  const FieldReader reader = FieldReader::parse(fields.bytes()).value();
  EXPECT_EQ(reader.all(Tag::kArg), (std::vector<std::string_view>{"a", ""}));
  EXPECT_EQ(reader.number(Tag::kStdin).value(), 1u);
  EXPECT_EQ(reader.number(Tag::kSignal).value(), 15u);
  EXPECT_EQ(reader.number_or_none(Tag::kSize), 0x0102030405060708u);
  EXPECT_TRUE(reader.has(Tag::kSize));
  EXPECT_FALSE(reader.has(Tag::kPath));
}

TEST(Fields, SayWhatIsMissingOrOfWrongSize) {
  Fields fields;
  fields.put(Tag::kSize, "abc");
  const FieldReader reader = FieldReader::parse(fields.bytes()).value();
  EXPECT_EQ(reader.text(Tag::kPath).error().message(), "fields: tag 65 is missing");
  EXPECT_EQ(reader.number(Tag::kSize).error().message(),
            "fields: tag 70 has 3 bytes, a number has 1, 2, 4 or 8");
  EXPECT_EQ(reader.number_or_none(Tag::kSize), std::nullopt);
}

TEST(Fields, RefuseWhatDoesNotFit) {
  EXPECT_EQ(FieldReader::parse("abc").error().message(),
            "fields: 3 bytes at the end, a field has at least 6");
  Fields fields;
  fields.put(Tag::kArg, "abcdef");
  const std::string cut = fields.bytes().substr(0, 9);
  EXPECT_EQ(FieldReader::parse(cut).error().message(),
            "fields: tag 16 has 6 bytes, only 3 are left");
}

TEST(Fields, IgnoreUnknownTagsUnlessTheyAreCritical) {
  Fields fields;
  fields.put(static_cast<Tag>(0x7000), "new").put(Tag::kCwd, "/");
  EXPECT_EQ(FieldReader::parse(fields.bytes()).value().text(Tag::kCwd).value(), "/");
  fields.put(static_cast<Tag>(kCritical | 0x10), "must");
  const Result<FieldReader> refused = FieldReader::parse(fields.bytes());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code(), Code::kUnimplemented);
  EXPECT_TRUE(FieldReader::parse(fields.bytes(), FieldReader::Critical::kIgnore).has_value());
  EXPECT_TRUE(FieldReader::parse(Fields().put_u8(Tag::kBirthCgroup, 1).bytes()).has_value());
}

TEST(Fields, CarryAnError) {
  Fields fields;
  fields.put_error(Error::syscall("open /x", ENOENT));
  const FieldReader reader = FieldReader::parse(fields.bytes()).value();
  ASSERT_TRUE(reader.error().has_value());
  EXPECT_EQ(reader.error()->code(), Code::kNotFound);
  EXPECT_EQ(reader.error()->message(), "open /x: No such file or directory");
  EXPECT_EQ(reader.number(Tag::kErrorErrno).value(), static_cast<std::uint64_t>(ENOENT));
  EXPECT_FALSE(FieldReader::parse("").value().error().has_value());
}

TEST(Fields, TakeAnErrorCodeThatNobodyKnowsForUnknown) {
  Fields fields;
  fields.put_u32(Tag::kErrorCode, 4711);
  const FieldReader reader = FieldReader::parse(fields.bytes()).value();
  EXPECT_EQ(reader.error()->code(), Code::kUnknown);
  EXPECT_EQ(reader.error()->message(), "the peer gave no reason");
}

// ---- an OPEN that is longer than a frame

std::string long_payload(std::size_t size) {
  Fields fields;
  fields.put(Tag::kArg, std::string(size, 'x'));
  return fields.bytes();
}

TEST(ProtoLongOpen, ComesInPiecesAndIsOneFrame) {
  for (const std::size_t size : {std::size_t{kMaxPayload} - 6, std::size_t{kMaxPayload} - 5,
                                 std::size_t{300'000}, std::size_t{kMaxOpen} - 6}) {
    const std::string payload = long_payload(size);
    const std::string bytes = encode_frame(7, FrameType::kOpen, 1, payload) +
                              encode_frame(7, FrameType::kData, 0, "behind");
    Decoder decoder;
    std::vector<Frame> frames;
    for (std::size_t at = 0; at < bytes.size(); at += 10'000) {
      decoder.feed(std::string_view(bytes).substr(at, 10'000));
      for (auto frame = decoder.next(); frame.value().has_value(); frame = decoder.next())
        frames.push_back(std::move(**frame));
    }
    ASSERT_EQ(frames.size(), 2u) << size;
    EXPECT_EQ(frames[0].header.type, FrameType::kOpen);
    EXPECT_EQ(frames[0].header.stream, 7u);
    EXPECT_EQ(frames[0].header.detail, 1);
    EXPECT_EQ(frames[0].header.length, payload.size());
    EXPECT_EQ(frames[0].payload, payload);
    EXPECT_EQ(frames[1].payload, "behind");
  }
}

TEST(ProtoLongOpen, WhoDoesNotKnowPiecesRefusesTheFirst) {
  const std::string bytes = encode_frame(7, FrameType::kOpen, 1, long_payload(100'000));
  const auto first = FieldReader::parse(
      std::string_view(bytes).substr(kHeaderSize, encoded_size(bytes) - kHeaderSize));
  EXPECT_EQ(first.error().code(), Code::kUnimplemented);
}

TEST(ProtoLongOpen, WhatIsWrongBreaksTheConnection) {
  const auto piece = [](std::string_view bytes) {
    return Fields().put(Tag::kPiece, bytes).bytes();
  };
  const auto whole = [&](std::uint32_t size, std::string_view bytes) {
    return Fields().put_u32(Tag::kWhole, size).bytes() + piece(bytes);
  };
  const auto open = [](std::string_view payload) {
    return encode_frame(7, FrameType::kOpen, 1, payload);
  };
  const auto control = [](std::uint32_t stream, std::string_view payload) {
    return encode_frame(stream, FrameType::kControl, 0, payload);
  };
  const std::string begun = open(whole(5, "abc"));
  for (const std::string& bytes :
       {open(whole(kMaxOpen + 1, "abc")), open(whole(2, "abc")), open(whole(5, "")),
        open(Fields().put_u32(Tag::kWhole, 5).bytes()),
        open(Fields().put(Tag::kWhole, "x").bytes()), begun + control(7, piece("def")),
        begun + control(7, piece("")),
        begun + control(7, Fields().put_u32(Tag::kSignal, 9).bytes()),
        begun + control(9, piece("d")), begun + begun,
        begun + encode_frame(7, FrameType::kData, 0, "d")}) {
    Decoder decoder;
    decoder.feed(bytes);
    const auto frame = decoder.next();
    ASSERT_FALSE(frame.has_value());
    EXPECT_EQ(frame.error().code(), Code::kInvalidArgument);
    decoder.feed(open("behind"));
    EXPECT_FALSE(decoder.next().has_value());
  }
  Decoder decoder;
  decoder.feed(begun + control(7, piece("de")));
  EXPECT_EQ(decoder.next().value()->payload, "abcde");
}

}  // namespace
}  // namespace caisson::proto
