#include "wall/namespace/netlink.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <limits>
#include <string>

#include "base/kernel_abi.h"

namespace caisson::wall::netlink {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace std::string_view_literals;

// A message of the kernel's.
std::string answer(std::uint16_t type, std::uint16_t flags, std::uint32_t number,
                   std::string_view payload) {
  const nlmsghdr header{static_cast<std::uint32_t>(sizeof(nlmsghdr) + payload.size()), type, flags,
                        number, 0};
  std::string bytes(raw(header));
  bytes += payload;
  bytes.resize((bytes.size() + 3) & ~std::size_t{3});
  return bytes;
}

std::string verdict(int error, std::uint32_t number, std::uint16_t flags = NLM_F_CAPPED,
                    const Attributes& details = {}, std::string_view rest = "") {
  nlmsgerr said{};
  said.error = -error;
  said.msg.nlmsg_len = static_cast<std::uint32_t>(sizeof(nlmsghdr) + rest.size());
  return answer(NLMSG_ERROR, flags, number,
                std::string(raw(said)) + std::string(rest) + details.encoded());
}

TEST(NetlinkAttributes, AreLengthTypeValueAndPadding) {
  Attributes attributes;
  attributes.text(1, "gw0").u8(2, 7).big_u32(3, 0x01020304).big_u64(4, 5);
  EXPECT_EQ(attributes.encoded(),
            "\x08\0\x01\0gw0\0"
            "\x05\0\x02\0\x07\0\0\0"
            "\x08\0\x03\0\x01\x02\x03\x04"
            "\x0c\0\x04\0\0\0\0\0\0\0\0\x05"sv);
  EXPECT_TRUE(attributes.fits());
}

TEST(NetlinkAttributes, ANestIsFlaggedAndItsHeaderComesFirst) {
  const Attributes inner = Attributes().u8(1, 2);
  EXPECT_EQ(Attributes().nest(9, inner, "abc").encoded(),
            "\x10\0\x09\x80"
            "abc\0"
            "\x05\0\x01\0\x02\0\0\0"sv);
}

TEST(NetlinkAttributes, ComeBackAsTheyWereWritten) {
  Attributes attributes;
  attributes.bytes(1, "").bytes(2, "abcde").nest(3, Attributes().u32(4, 5));
  const auto read = split_attributes(attributes.encoded());
  ASSERT_TRUE(read.has_value());
  ASSERT_EQ(read->size(), 3u);
  EXPECT_EQ((*read)[1].value, "abcde");
  EXPECT_FALSE((*read)[1].nested);
  EXPECT_TRUE((*read)[2].nested);
  EXPECT_EQ(find(*read, 3), Attributes().u32(4, 5).encoded());
  EXPECT_EQ(find(*read, 8), "");
}

TEST(NetlinkAttributes, OneThatItsLengthCannotSayIsNotWritten) {
  Attributes attributes;
  attributes.bytes(1, std::string(0xffff - sizeof(nlattr), 'x'));
  EXPECT_TRUE(attributes.fits());
  attributes.bytes(2, std::string(0xffff - sizeof(nlattr) + 1, 'x'));
  EXPECT_FALSE(attributes.fits());
  EXPECT_EQ(split_attributes(attributes.encoded())->size(), 1u);
  EXPECT_FALSE(Attributes().nest(1, attributes).fits());
}

TEST(NetlinkAttributes, LengthsThatCannotBeAreRefused) {
  for (const std::string_view bytes : {"\x05\0\x01\0"sv, "\x03\0\x01\0"sv, "\0\0\x01\0"sv,
                                       "\x04\0\x01"sv, "\x04\0\x01\0\xff\xff\x01\0"sv}) {
    const auto read = split_attributes(bytes);
    ASSERT_FALSE(read.has_value());
    EXPECT_EQ(read.error().code(), Code::kDataLoss);
  }
  // The last one needs no padding.
  EXPECT_EQ(split_attributes("\x05\0\x01\0\x07"sv)->size(), 1u);
}

TEST(NetlinkBatch, NumbersItsMessagesAndKnowsWhatTheyAre) {
  Batch batch;
  batch.add(16, 0, "head!", Attributes().u8(1, 2), "the first");
  batch.add(17, NLM_F_ACK, "", {}, "the second");
  const auto messages = split_answers(batch.encoded());
  ASSERT_TRUE(messages.has_value());
  ASSERT_EQ(messages->size(), 2u);
  EXPECT_EQ((*messages)[0].type, 16);
  EXPECT_EQ((*messages)[0].flags, NLM_F_REQUEST);
  EXPECT_EQ((*messages)[0].number, 1u);
  EXPECT_EQ((*messages)[0].payload, "head!\0\0\0\x05\0\x01\0\x02\0\0\0"sv);
  EXPECT_EQ((*messages)[1].flags, NLM_F_REQUEST | NLM_F_ACK);
  EXPECT_STREQ(batch.what(2), "the second");
  EXPECT_STREQ(batch.what(3), "netlink");
  EXPECT_FALSE(batch.wants_answer(1));
  EXPECT_TRUE(batch.wants_answer(2));
  EXPECT_FALSE(batch.wants_answer(0));
}

TEST(NetlinkBatch, TooManyMessagesAreNotSentInPart) {
  Batch batch;
  const Attributes large = Attributes().bytes(1, std::string(32 * 1024, 'x'));
  batch.add(16, 0, "", large, "one");
  EXPECT_TRUE(batch.fits());
  batch.add(16, 0, "", large, "two");
  EXPECT_FALSE(batch.fits());
  const auto socket = Socket::open(NETLINK_ROUTE);
  ASSERT_TRUE(socket.has_value());
  const auto sent = socket->commit(batch);
  ASSERT_FALSE(sent.has_value());
  EXPECT_THAT(sent.error().message(), HasSubstr("too long"));
}

TEST(NetlinkBatch, AnAttributeThatDidNotFitIsNotSentWithout) {
  Batch batch;
  batch.add(16, 0, "", Attributes().bytes(1, std::string(1 << 16, 'x')), "one");
  EXPECT_FALSE(batch.fits());
}

TEST(NetlinkAnswers, LengthsThatCannotBeAreRefused) {
  std::string bytes = answer(2, 0, 1, "1234");
  EXPECT_TRUE(split_answers(bytes).has_value());
  EXPECT_FALSE(split_answers(bytes + "x").has_value());
  bytes[0] = 15;  // shorter than its own header
  EXPECT_FALSE(split_answers(bytes).has_value());
  bytes[0] = 24;  // longer than all
  EXPECT_FALSE(split_answers(bytes).has_value());
}

TEST(NetlinkVerdict, HasTheNumberAndTheKernelsSentence) {
  const auto read = [](const std::string& bytes) {
    return read_verdict(split_answers(bytes)->front());
  };
  EXPECT_EQ(read(verdict(0, 1))->error, 0);
  EXPECT_EQ(read(verdict(EEXIST, 1))->error, EEXIST);
  const Attributes details = Attributes().text(NLMSGERR_ATTR_MSG, "no such kind");
  EXPECT_EQ(read(verdict(EINVAL, 1, NLM_F_CAPPED | NLM_F_ACK_TLVS, details))->text, "no such kind");
  // Without the flag nothing is looked for; without the other one the message comes before it.
  EXPECT_EQ(read(verdict(EINVAL, 1, NLM_F_CAPPED, details))->text, "");
  EXPECT_EQ(read(verdict(EINVAL, 1, NLM_F_ACK_TLVS, details, "12345678"))->text, "no such kind");
}

TEST(NetlinkVerdict, OneThatIsCutOffIsRefused) {
  EXPECT_FALSE(read_verdict({NLMSG_ERROR, 0, 1, "1234"}).has_value());
  nlmsgerr said{};
  said.error = -EINVAL;
  said.msg.nlmsg_len = 4096;
  EXPECT_FALSE(read_verdict({NLMSG_ERROR, NLM_F_ACK_TLVS, 1, raw(said)}).has_value());
  for (const int error : {5, -4096, std::numeric_limits<int>::min()}) {
    said.error = error;
    EXPECT_FALSE(read_verdict({NLMSG_ERROR, 0, 1, raw(said)}).has_value()) << error;
  }
}

TEST(NetlinkHolds, WhatIsToldBesideItIsNoDifference) {
  const Attributes asked = Attributes().u8(1, 2).nest(3, Attributes().u8(4, 5));
  const Attributes more = Attributes().u8(9, 9).nest(3, Attributes().u8(8, 8).u8(4, 5)).u8(1, 2);
  EXPECT_TRUE(holds(more.encoded(), asked.encoded()).value());
  EXPECT_FALSE(holds(asked.encoded(), more.encoded()).value());
  const Attributes other = Attributes().u8(1, 2).nest(3, Attributes().u8(4, 6));
  EXPECT_FALSE(holds(other.encoded(), asked.encoded()).value());
  EXPECT_TRUE(holds("", "").value());
  EXPECT_FALSE(holds("x", "").has_value());
}

TEST(NetlinkSocket, TheKernelsRefusalNamesTheMessage) {
  const auto socket = Socket::open(NETLINK_ROUTE);
  ASSERT_TRUE(socket.has_value());
  ifinfomsg nobody{};
  nobody.ifi_index = 1 << 30;
  Batch batch;
  batch.add(RTM_GETLINK, 0, raw(nobody), {}, "looking at nobody");
  const auto asked = socket->ask(batch);
  ASSERT_FALSE(asked.has_value());
  EXPECT_EQ(asked.error().error_number(), ENODEV);
  EXPECT_THAT(asked.error().message(), HasSubstr("looking at nobody"));
  // The same where only its success is asked for.
  const auto sent = socket->commit(batch);
  ASSERT_FALSE(sent.has_value());
  EXPECT_EQ(sent.error().error_number(), ENODEV);
}

TEST(NetlinkSocket, AnswersOfManyPiecesComeWhole) {
  const auto socket = Socket::open(NETLINK_ROUTE);
  ASSERT_TRUE(socket.has_value());
  Batch batch;
  batch.add(RTM_GETLINK, NLM_F_DUMP, raw(ifinfomsg{}), {}, "all links");
  const auto bytes = socket->ask(batch);
  ASSERT_TRUE(bytes.has_value()) << bytes.error().message();
  const auto answers = split_answers(*bytes);
  ASSERT_TRUE(answers.has_value());
  EXPECT_EQ(answers->front().type, RTM_NEWLINK);
  EXPECT_EQ(answers->back().type, NLMSG_DONE);
  const auto facts = split_attributes(answers->front().payload.substr(sizeof(ifinfomsg)));
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(find(*facts, IFLA_IFNAME), "lo\0"sv);
}

TEST(NetlinkSocket, ANumberThatIsNoProtocolIsRefused) {
  EXPECT_FALSE(Socket::open(31).has_value());
}

}  // namespace
}  // namespace caisson::wall::netlink
