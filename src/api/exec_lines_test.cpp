#include "api/exec_lines.h"

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/verdict.h"

namespace caisson::api {
namespace {

using Message = fleet::BoxStream::Message;
using proto::Channel;

Message data(std::string bytes, Channel channel = Channel::kOut) {
  return {Message::Kind::kData, channel, std::move(bytes)};
}
Message finish(Channel channel) {
  return {Message::Kind::kFinish, channel, ""};
}
Message event(const proto::Fields& fields) {
  return {Message::Kind::kEvent, Channel::kOut, fields.bytes()};
}
Message close(std::string payload) {
  return {Message::Kind::kClose, Channel::kOut, std::move(payload)};
}

TEST(ExecLinesTest, TheStartHasThePid) {
  ExecLines lines("base");
  EXPECT_EQ(*lines.take(event(proto::Fields().put_u32(proto::Tag::kStarted, 7))),
            "{\"started\":{\"pid\":7}}\n");
  EXPECT_EQ(*lines.take(event(proto::Fields())), "");
}

TEST(ExecLinesTest, OutputIsALineByChannel) {
  ExecLines lines("base");
  EXPECT_EQ(*lines.take(data("42\n")), "{\"stdout\":\"42\\n\"}\n");
  EXPECT_EQ(*lines.take(data("x", Channel::kErr)), "{\"stderr\":\"x\"}\n");
}

TEST(ExecLinesTest, ACharacterInTwoPiecesStaysOne) {
  ExecLines lines("base");
  EXPECT_EQ(*lines.take(data("a\xc3")), "{\"stdout\":\"a\"}\n");
  EXPECT_EQ(*lines.take(data("\xff", Channel::kErr)),
            "{\"stderr\":\"/w==\",\"encoding\":\"base64\"}\n");
  EXPECT_EQ(*lines.take(data("\xa4")), "{\"stdout\":\"ä\"}\n");
  EXPECT_EQ(*lines.take(data("\xe2\x82")), "");
}

TEST(ExecLinesTest, WhatWasHeldBackComesAtTheEndOfItsChannel) {
  ExecLines lines("base");
  EXPECT_EQ(*lines.take(data("\xc3")), "");
  EXPECT_EQ(*lines.take(finish(Channel::kErr)), "");
  EXPECT_EQ(*lines.take(finish(Channel::kOut)), "{\"stdout\":\"ww==\",\"encoding\":\"base64\"}\n");
}

TEST(ExecLinesTest, TheEndHasTheVerdict) {
  ExecLines lines("base");
  Outcome outcome;
  outcome.verdict = Verdict::kExited;
  outcome.exit_code = 3;
  EXPECT_EQ(*lines.take(data("\xc3", Channel::kErr)), "");
  EXPECT_FALSE(lines.ended());
  const Result<std::string> text = lines.take(close(encode_outcome(outcome)));
  ASSERT_TRUE(text.has_value());
  EXPECT_TRUE(lines.ended());
  const std::size_t second = text->find('\n') + 1;
  EXPECT_EQ(text->substr(0, second), "{\"stderr\":\"ww==\",\"encoding\":\"base64\"}\n");
  const Result<json::Value> end = json::parse(std::string_view(*text).substr(second));
  ASSERT_TRUE(end.has_value()) << *text;
  const json::Value* verdict = end->find("end")->find("verdict");
  ASSERT_NE(verdict, nullptr);
  EXPECT_EQ(*verdict->find("kind"), json::Value("exited"));
  EXPECT_EQ(*verdict->find("code"), json::Value(3));
  EXPECT_EQ(*end->find("end")->find("image"), json::Value("base"));
}

TEST(ExecLinesTest, ARefusalIsAnError) {
  ExecLines lines("base");
  const proto::Fields fields =
      proto::Fields().put_error(Error(Code::kNotFound, "there is no user 'x'"));
  EXPECT_EQ(*lines.take(close(fields.bytes())),
            "{\"error\":{\"code\":\"not_found\",\"message\":\"there is no user 'x'\"}}\n");
  EXPECT_TRUE(lines.ended());
}

TEST(ExecLinesTest, AnEndWithoutAReasonIsAnErrorToo) {
  ExecLines lines("base");
  EXPECT_EQ(*lines.take(close("")),
            "{\"error\":{\"code\":\"internal\",\"message\":\"the command was not run\"}}\n");
}

TEST(ExecLinesTest, WhatIsMissingIsSaid) {
  ExecLines lines("base");
  EXPECT_EQ(*lines.take(data("\xc3")), "");
  const proto::Fields fields = proto::Fields().put_u64(proto::Tag::kMissed, 5000);
  EXPECT_EQ(*lines.take({Message::Kind::kEvent, Channel::kOut, fields.bytes()}),
            "{\"stdout\":\"ww==\",\"encoding\":\"base64\"}\n{\"missed\":5000}\n");
}

TEST(ExecLinesTest, ACommandThatGoesOnSaysSo) {
  ExecLines lines("base");
  const proto::Fields started = proto::Fields().put_u32(proto::Tag::kStarted, 7);
  EXPECT_EQ(*lines.take({Message::Kind::kEvent, Channel::kOut, started.bytes()}),
            "{\"started\":{\"pid\":7}}\n");
  EXPECT_EQ(*lines.take(close("")), "{\"goes_on\":true}\n");
  EXPECT_TRUE(lines.ended());
}

TEST(ExecLinesTest, WhatIsMalformedIsAnError) {
  EXPECT_FALSE(ExecLines("base").take(close("x")).has_value());
  EXPECT_FALSE(ExecLines("base").take({Message::Kind::kEvent, Channel::kOut, "x"}).has_value());
  const proto::Fields fields = proto::Fields().put_u8(proto::Tag::kVerdict, 200);
  EXPECT_FALSE(ExecLines("base").take(close(fields.bytes())).has_value());
}

}  // namespace
}  // namespace caisson::api
