#include "vault/protocol.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "vault/secret_body.h"

namespace caisson::vault {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string text(const Request& request) {
  const SecretBytes bytes = encode(request);
  return {bytes.begin(), bytes.end()};
}

TEST(VaultProtocolTest, ARequestIsReadAsItWasWritten) {
  const Request seal{.operation = Operation::kSeal,
                     .rules = "{}",
                     .before = "sealed",
                     .values = {{.name = "a", .value = std::make_shared<SecretValue>("the value")},
                                {.name = "b", .kept_id = "sec_1", .kept = "sealed"},
                                {.name = "c"}}};
  const auto read = decode_request(text(seal));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->rules, "{}");
  EXPECT_EQ(read->before, "sealed");
  ASSERT_EQ(read->values.size(), 3u);
  EXPECT_EQ(read->values[0].value->bytes(), "the value");
  EXPECT_EQ(read->values[1].kept_id, "sec_1");
  EXPECT_EQ(read->values[1].kept, "sealed");
  EXPECT_EQ(read->values[2].value, nullptr);
  EXPECT_EQ(text(*read), text(seal));
  for (const Request& request :
       {Request{.operation = Operation::kKeep, .id = "sec_1"},
        Request{.operation = Operation::kMakeKeys},
        Request{.operation = Operation::kSealForGateway, .id = "v1", .sealed = "s"}}) {
    const auto again = decode_request(text(request));
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(text(*again), text(request));
  }
}

TEST(VaultProtocolTest, WhatIsNoRequestIsRefused) {
  const std::string good =
      text({.operation = Operation::kSealForGateway, .id = "v1", .sealed = "s"});
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_FALSE(decode_request(good.substr(0, size)).has_value()) << size;
  EXPECT_THAT(decode_request(good + "x").error().message(), HasSubstr("stands behind it"));
  EXPECT_FALSE(decode_request(std::string(kMostRequest + 1, 'x')).has_value());
  std::string other = good;
  other[8] = 77;
  EXPECT_THAT(decode_request(other).error().message(), HasSubstr("no such operation"));
  // A value with a kind that does not fit what it has.
  std::string seal = text({.operation = Operation::kSeal, .values = {{.name = "c"}}});
  for (const char kind : {'\2', '\3'}) {
    seal[seal.size() - 9] = kind;
    EXPECT_THAT(decode_request(seal).error().message(), HasSubstr("of no kind"));
  }
  std::string many = text({.operation = Operation::kSeal});
  many[many.size() - 3] = 0x7f;
  EXPECT_THAT(decode_request(many).error().message(), HasSubstr("too many values"));
}

TEST(VaultProtocolTest, AnAnswerIsTextsOrAnError) {
  EXPECT_THAT(decode_answer(encode_done({"a", "", std::string(1, '\0')})).value(),
              ElementsAre("a", "", std::string(1, '\0')));
  EXPECT_TRUE(decode_answer(encode_done({}))->empty());
  const auto error = decode_answer(encode_error(Error::invalid("why")));
  EXPECT_EQ(error.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(error.error().message(), "why");
  for (const std::string_view bytes : {"", "\1", "\1\1", "\1\x7fwhy", "\2"}) {
    if (bytes == "\1\1") continue;  // an error without a sentence
    EXPECT_EQ(decode_answer(bytes).error().code(), Code::kDataLoss) << bytes.size();
  }
  EXPECT_EQ(decode_answer(encode_done({"a"}) + "x").error().code(), Code::kDataLoss);
}

TEST(SecretBodyTest, TheValueIsTakenOutAndNothingElse) {
  const auto taken = take_value(
      R"( {"name": "n", "v\u0061lue" : "a\"\u00e9\ud83d\ude00\\z", "m":{"value":"x"}} )");
  ASSERT_TRUE(taken.has_value()) << taken.error().message();
  EXPECT_EQ(taken->value.bytes(), "a\"\xc3\xa9\xf0\x9f\x98\x80\\z");
  EXPECT_EQ(taken->rest, R"( {"name": "n", "v\u0061lue" : "", "m":{"value":"x"}} )");
}

TEST(SecretBodyTest, WhatHasNoneOrTwoIsRefusedWithoutAByteOfIt) {
  for (const std::string_view body :
       {"", "{}", "[\"canary\"]", "\"canary\"", R"({"value":["canary"]})", R"({"value":null})",
        R"({"value":"canary","value":"canary"})", R"({"value":"canary","v\u0061lue":"canary"})",
        R"({"value":"canary"}x)", R"({"value":"canary)", "{\"value\":\"canary\xff\"}"}) {
    const auto taken = take_value(body);
    ASSERT_FALSE(taken.has_value()) << body;
    EXPECT_EQ(taken.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(taken.error().message(), ::testing::Not(HasSubstr("canary")));
  }
  EXPECT_EQ(take_value(std::string(kMostSecretBody + 1, ' ')).error().code(), Code::kOutOfRange);
}

}  // namespace
}  // namespace caisson::vault
