#include "maker/protocol.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace caisson::maker {
namespace {

Request make_request() {
  return {.operation = Operation::kMake,
          .recipe = {.image = "registry.example.com/tools:2",
                     .cpu_milli = 500,
                     .memory_bytes = 1ull << 30,
                     .disk_bytes = {},
                     .pids = 7}};
}

TEST(MakerProtocol, ARequestIsReadAsItWasWritten) {
  const auto made = decode_request(encode(make_request()));
  ASSERT_TRUE(made.has_value()) << made.error().message();
  EXPECT_EQ(made->operation, Operation::kMake);
  EXPECT_EQ(made->recipe, make_request().recipe);

  const auto connect = decode_request(encode({.operation = Operation::kConnect, .name = "ab12"}));
  ASSERT_TRUE(connect.has_value());
  EXPECT_EQ(connect->operation, Operation::kConnect);
  EXPECT_EQ(connect->name, "ab12");
}

TEST(MakerProtocol, EveryRequestThatEndsEarlyIsRefused) {
  const std::string whole = encode({.operation = Operation::kFindImage, .name = "x"});
  for (std::size_t size = 0; size < whole.size(); ++size)
    EXPECT_EQ(decode_request(whole.substr(0, size)).error().code(), Code::kInvalidArgument) << size;
}

TEST(MakerProtocol, NamesThatAreNoneAreRefused) {
  const std::vector<std::pair<Operation, std::string>> wrong = {
      {Operation::kConnect, "../x"},
      {Operation::kConnect, "Ab"},
      {Operation::kConnect, std::string(33, 'a')},
      {Operation::kConnect, ""},
      {Operation::kFindImage, ""},
      {Operation::kFindImage, "a b"},
      {Operation::kFindImage, std::string("a\0b", 3)},
      {Operation::kFindImage, std::string(kMostName + 1, 'a')},
      {Operation::kKept, "a"},
      {Operation::kStartBuilder, "a"},
      {Operation::kTemplateImages, "a"},
      {Operation::kDropTemplateImage, ""},
      {Operation::kDropTemplateImage, "base"},
      {Operation::kDropTemplateImage, "caisson-snapshot/a"},
      {Operation::kImages, "a"}};
  for (const auto& [operation, name] : wrong) {
    const auto read = decode_request(encode({.operation = operation, .name = name}));
    EXPECT_FALSE(read.has_value()) << name;
  }
}

TEST(MakerProtocol, AnUnknownOperationOrVersionIsRefused) {
  std::string bytes = encode(make_request());
  bytes[8] = 0;
  EXPECT_FALSE(decode_request(bytes).has_value());
  bytes[8] = 6;
  EXPECT_FALSE(decode_request(bytes).has_value());
  bytes[8] = 1;
  bytes[7] = '2';
  EXPECT_FALSE(decode_request(bytes).has_value());
}

TEST(MakerProtocol, AnAnswerSaysWhatWasMade) {
  const auto answer = decode_answer(encode_made({.id = "id0", .user = "user", .workdir = ""}));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->kind, Answer::Kind::kDone);
  EXPECT_EQ(answer->texts, (std::vector<std::string>{"id0", "user", ""}));
}

TEST(MakerProtocol, AnErrorKeepsItsCodeAndSentence) {
  const auto answer = decode_answer(encode_error(Error::not_found("there is none")));
  ASSERT_FALSE(answer.has_value());
  EXPECT_EQ(answer.error().code(), Code::kNotFound);
  EXPECT_EQ(answer.error().message(), "there is none");
  EXPECT_LE(encode_error(Error::internal(std::string(1 << 20, 'x'))).size(), kMostAnswer);
}

TEST(MakerProtocol, ALongListGoesInParts) {
  std::vector<std::string> names;
  for (int i = 0; i < 10'000; ++i) names.push_back("image-" + std::to_string(i));
  std::vector<std::string> read;
  const auto parts = encode_list(names);
  EXPECT_GT(parts.size(), 1u);
  for (const std::string& part : parts) {
    EXPECT_LE(part.size(), kMostAnswer);
    const auto answer = decode_answer(part);
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ(answer->kind, Answer::Kind::kPart);
    read.insert(read.end(), answer->texts.begin(), answer->texts.end());
  }
  EXPECT_EQ(read, names);
}

TEST(MakerProtocol, AnAnswerThatIsNoneIsRefused) {
  for (const std::string& bytes :
       {std::string(), std::string("\x03"), std::string("\x01"), std::string("\x01\x63x")})
    EXPECT_EQ(decode_answer(bytes).error().code(), Code::kDataLoss);
}

}  // namespace
}  // namespace caisson::maker
