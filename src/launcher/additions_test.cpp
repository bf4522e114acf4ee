#include "launcher/additions.h"

#include <gtest/gtest.h>

#include "base/proto.h"
#include "base/verdict.h"

namespace caisson::launcher {
namespace {

using proto::ErrorSubject;
using proto::Fields;
using proto::Tag;

TEST(Additions, CountersComeBehindTheGuestsValues) {
  const std::string sample =
      Fields().put(Tag::kMetricName, "cpu_used_us").put_u64(Tag::kMetricValue, 1).bytes();
  wall::Usage usage;
  usage.user_us = 40;
  usage.system_us = 2;
  usage.memory_now = 5;
  const std::string all = with_counters(sample, usage);
  ASSERT_TRUE(all.starts_with(sample));
  const auto fields = proto::FieldReader::parse(all).value();
  EXPECT_EQ(fields.all(Tag::kMetricName),
            (std::vector<std::string_view>{"cpu_used_us", "cpu_used_us", "memory_used"}));
  EXPECT_EQ(fields.all(Tag::kMetricValue).at(1), std::string_view("\x2a\0\0\0\0\0\0\0", 8));
}

TEST(Additions, ASampleThatFillsAFrameStaysAsItIs) {
  const std::string sample(proto::kMaxPayload - 8, 'x');
  wall::Usage usage;
  usage.memory_now = 5;
  EXPECT_EQ(with_counters(sample, usage), sample);
}

TEST(Additions, AVerdictKeepsWhatTheStartFailedAt) {
  const std::string close = Fields()
                                .put_error(Error::syscall("working directory /no", ENOENT))
                                .put_u8(Tag::kErrorSubject, 2)
                                .bytes();
  const std::string payload = encode_outcome({}) + start_error(close);
  EXPECT_TRUE(decode_outcome(payload).has_value());
  const auto fields = proto::FieldReader::parse(payload).value();
  EXPECT_EQ(fields.number(Tag::kErrorSubject).value(),
            static_cast<std::uint64_t>(ErrorSubject::kDirectory));
  EXPECT_EQ(fields.number(Tag::kErrorErrno).value(), static_cast<std::uint64_t>(ENOENT));
  EXPECT_FALSE(fields.error().has_value());
}

TEST(Additions, WhatAGuestMakesUpIsNotPassedOn) {
  for (const std::uint64_t subject : {0u, 4u, 1000u})
    EXPECT_EQ(start_error(Fields().put_u64(Tag::kErrorSubject, subject).bytes()), "");
  EXPECT_EQ(start_error(""), "");
  EXPECT_EQ(start_error("no fields"), "");
  const std::string close =
      Fields().put_u8(Tag::kErrorSubject, 1).put_u64(Tag::kErrorErrno, 0x123456789).bytes();
  EXPECT_EQ(proto::FieldReader::parse(start_error(close)).value().number(Tag::kErrorErrno).value(),
            0x789u);
}

}  // namespace
}  // namespace caisson::launcher
