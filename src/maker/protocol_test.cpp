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
                     .pids = 7,
                     .inodes = {},
                     .io_read = 5,
                     .wall = policy::WallKind::kNamespace,
                     .privileges = policy::Privileges::kNone,
                     .profile = policy::SyscallProfile::kBrowser,
                     .on_refusal = policy::OnRefusal::kKill,
                     .layer = policy::LayerKind::kTmpfs,
                     .require_hard_limits = true,
                     .user = "me",
                     .hostname = "box"}};
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
      {Operation::kImages, "a"},
      {Operation::kOldSnapshots, "a"},
      {Operation::kDropSnapshot, ""},
      {Operation::kFindClientsImage, "a b"}};
  for (const auto& [operation, name] : wrong) {
    const auto read = decode_request(encode({.operation = operation, .name = name}));
    EXPECT_FALSE(read.has_value()) << name;
  }
}

TEST(MakerProtocol, ASnapshotNamesASandboxAndItsImage) {
  const auto read = decode_request(
      encode({.operation = Operation::kTakeSnapshot, .name = "ab12", .image = "sha256:00"}));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->name, "ab12");
  EXPECT_EQ(read->image, "sha256:00");
  for (const auto& [name, image] : {std::pair("", "x"), std::pair("ab12", ""),
                                    std::pair("../x", "x"), std::pair("ab12", "a b")}) {
    EXPECT_FALSE(decode_request(
                     encode({.operation = Operation::kTakeSnapshot, .name = name, .image = image}))
                     .has_value())
        << name << " " << image;
  }
}

TEST(MakerProtocol, ABoundOfTheCacheIsTwoNumbers) {
  for (const CacheBound& bound :
       {CacheBound{.bytes = 20ull << 30, .seconds = 3600}, CacheBound{.bytes = 0, .seconds = {}},
        CacheBound{.bytes = {}, .seconds = ~0ull}}) {
    const auto read = decode_request(encode({.operation = Operation::kTrimCache, .cache = bound}));
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(read->cache, bound);
    EXPECT_EQ(read->name, "");
  }
  std::string bytes =
      encode({.operation = Operation::kTrimCache, .cache = {.bytes = 1, .seconds = 2}});
  bytes.resize(bytes.size() - 3);
  for (const char* text : {"", "1", "1:", ":1", "1:2:3", "-1:2", "01:2", "1:+2", "1: 2", "x:1",
                           "18446744073709551616:1", "--:1"})
    EXPECT_EQ(decode_request(bytes + text).error().code(), Code::kInvalidArgument) << text;
}

TEST(MakerProtocol, ARecipeOfUnknownChoicesOrTextsIsRefused) {
  const std::string whole = encode(make_request());
  const std::size_t choices = 8 + 1 + 12 * 8;
  for (std::size_t i = 0; i < 7; ++i) {
    std::string bytes = whole;
    bytes[choices + i] = 9;
    EXPECT_FALSE(decode_request(bytes).has_value()) << i;
  }
  EXPECT_FALSE(decode_request(whole + std::string(1, '\0')).has_value());
  EXPECT_FALSE(decode_request(whole.substr(0, whole.find("tools") + 7)).has_value());
}

TEST(MakerProtocol, AnUnknownOperationOrVersionIsRefused) {
  std::string bytes = encode(make_request());
  bytes[8] = 0;
  EXPECT_FALSE(decode_request(bytes).has_value());
  bytes[8] = 100;
  EXPECT_FALSE(decode_request(bytes).has_value());
  bytes[8] = 1;
  bytes[7] = '2';
  EXPECT_FALSE(decode_request(bytes).has_value());
}

TEST(MakerProtocol, AnAnswerSaysWhatWasMade) {
  const auto answer =
      decode_answer(encode_made({.id = "id0", .user = "user", .workdir = "", .image = "sha256:0"}));
  ASSERT_TRUE(answer.has_value());
  EXPECT_EQ(answer->kind, Answer::Kind::kDone);
  EXPECT_EQ(answer->texts, (std::vector<std::string>{"id0", "user", "", "sha256:0"}));
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
