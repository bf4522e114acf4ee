#include <cerrno>

#include "api/v1/scene_for_test.h"

namespace caisson::api::v1 {
namespace {

using proto::FileOperation;
using testing::ElementsAre;
using testing::HasSubstr;

class V1Files : public Scene {
 protected:
  static std::string at(std::string_view below, std::string_view query = "path=/tmp/x") {
    return "/v1/sandboxes/i1/files" + std::string(below) + "?" + std::string(query);
  }
  static proto::Frame opened(FakeSupervisor& fake, FileOperation operation) {
    proto::Frame open = fake.next(FrameType::kOpen);
    EXPECT_EQ(number(open, Tag::kOperation), static_cast<std::uint64_t>(operation));
    return open;
  }
  static void succeed(FakeSupervisor& fake, const proto::Frame& open) {
    fake.send(open.header.stream, FrameType::kClose, 0, "");
  }
  static std::string entry(std::string_view name, std::uint8_t type = 1) {
    return proto::Fields()
        .put(Tag::kName, name)
        .put_u8(Tag::kFileType, type)
        .put_u32(Tag::kMode, 0644)
        .put_u32(Tag::kUid, 1000)
        .put_u32(Tag::kGid, 1001)
        .put_u64(Tag::kSize, 5)
        .put_u64(Tag::kMtimeNs, 7)
        .bytes();
  }
  // The answer where the guest fails so.
  FakeExchange failing(std::string_view method, const std::string& target, const std::string& body,
                       const Error& error) {
    return ask(method, target, body, [&](FakeSupervisor& fake) {
      const proto::Frame open = fake.next(FrameType::kOpen);
      fake.send(open.header.stream, FrameType::kClose, 0, proto::Fields().put_error(error).bytes());
    });
  }
};

TEST_F(V1Files, OneIsRead) {
  const FakeExchange exchange =
      ask("GET", at("", "path=/tmp/../tmp//x&user=root"), "", [](FakeSupervisor& fake) {
        const proto::Frame open = opened(fake, FileOperation::kRead);
        EXPECT_THAT(texts(open, Tag::kPath), ElementsAre("/tmp/x"));
        EXPECT_THAT(texts(open, Tag::kUser), ElementsAre("root"));
        fake.send(open.header.stream, FrameType::kEvent, 0, entry("x"));
        fake.out(open.header.stream, "hello");
        succeed(fake, open);
      });
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.headers.get("Content-Type"), "application/octet-stream");
  EXPECT_EQ(exchange.answer, "hello");
  EXPECT_TRUE(exchange.ended);
}

TEST_F(V1Files, OneThatBreaksOffIsCutOff) {
  const FakeExchange exchange = ask("GET", at(""), "", [](FakeSupervisor& fake) {
    const proto::Frame open = opened(fake, FileOperation::kRead);
    fake.send(open.header.stream, FrameType::kEvent, 0, entry("x"));
    fake.send(open.header.stream, FrameType::kClose, 0,
              proto::Fields().put_error(Error::syscall("read", EIO)).bytes());
  });
  EXPECT_FALSE(exchange.ended);
  EXPECT_TRUE(exchange.aborted);
}

TEST_F(V1Files, OneIsWritten) {
  const FakeExchange exchange =
      ask("PUT", at("", "path=/tmp/x&mode=448&modified_ns=9&parents=true&exclusive=true"), "hello",
          [](FakeSupervisor& fake) {
            const proto::Frame open = opened(fake, FileOperation::kWrite);
            EXPECT_THAT(texts(open, Tag::kUser), ElementsAre("user"));
            EXPECT_EQ(number(open, Tag::kMode), 0700U);
            EXPECT_EQ(number(open, Tag::kMtimeNs), 9U);
            EXPECT_EQ(number(open, Tag::kRecursive), 1U);
            EXPECT_EQ(number(open, Tag::kExclusive), 1U);
            EXPECT_EQ(fake.next(FrameType::kData).payload, "hello");
            fake.next(FrameType::kFinish);
            succeed(fake, open);
          });
  EXPECT_EQ(exchange.status, 204) << exchange.answer;
}

TEST_F(V1Files, AFailedCallInsideIsTheClientsToKnow) {
  for (const auto& [number, status] : {std::pair{ENOENT, 404}, {EACCES, 403}, {EEXIST, 409}})
    refusal(failing("PUT", at(""), "x", Error::syscall("open /tmp/x", number)), status);
  EXPECT_THAT(refusal(failing("PUT", at(""), "x", Error::syscall("write", ENOSPC)), 507),
              HasSubstr("no space"));
}

TEST_F(V1Files, EachOperationAsksForWhatItIs) {
  const auto expect = [&](std::string_view method, const std::string& target,
                          const std::string& body, FileOperation operation, Tag tag,
                          const std::string& value) {
    const FakeExchange exchange = ask(method, target, body, [&](FakeSupervisor& fake) {
      const proto::Frame open = opened(fake, operation);
      EXPECT_THAT(texts(open, tag), ElementsAre(value)) << target;
      succeed(fake, open);
    });
    EXPECT_EQ(exchange.status, 204) << exchange.answer;
  };
  const std::string one("\x01", 1), mode("\xc0\x01\0\0", 4);
  expect("DELETE", at("", "path=/tmp/x&recursive=true"), "", FileOperation::kRemove,
         Tag::kRecursive, one);
  expect("PUT", at("/directory", "path=/tmp/x&mode=448&parents=true"), "", FileOperation::kMakeDir,
         Tag::kMode, mode);
  expect("PUT", at("/link"), R"({"target":"../y"})", FileOperation::kSymlink, Tag::kTarget, "../y");
  expect("POST", at("/move"), R"({"to":"/tmp/y"})", FileOperation::kRename, Tag::kTarget, "/tmp/y");
  expect("PATCH", at(""), R"({"mode":448})", FileOperation::kChmod, Tag::kMode, mode);
  expect("PATCH", at(""), R"({"modified_ns":1})", FileOperation::kSetTimes, Tag::kMtimeNs,
         std::string("\x01\0\0\0\0\0\0\0", 8));
}

TEST_F(V1Files, BothAttributesAreChangedInTurn) {
  const FakeExchange exchange =
      ask("PATCH", at(""), R"({"mode":448,"modified_ns":1})", [](FakeSupervisor& fake) {
        succeed(fake, opened(fake, FileOperation::kChmod));
        succeed(fake, opened(fake, FileOperation::kSetTimes));
      });
  EXPECT_EQ(exchange.status, 204);
}

TEST_F(V1Files, OneIsShown) {
  const FakeExchange exchange =
      ask("GET", at("/stat", "path=/tmp/x&follow=true"), "", [](FakeSupervisor& fake) {
        const proto::Frame open = opened(fake, FileOperation::kStat);
        EXPECT_EQ(number(open, Tag::kFollow), 1U);
        fake.send(open.header.stream, FrameType::kEvent, 0, entry("other"));
        succeed(fake, open);
      });
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.answer,
            R"({"name":"x","type":"file","mode":420,"uid":1000,"gid":1001,"size":5,)"
            R"("modified_ns":7})");
}

TEST_F(V1Files, ADirectoryIsListed) {
  const FakeExchange exchange =
      ask("GET", at("/list", "path=/tmp&depth=3"), "", [](FakeSupervisor& fake) {
        const proto::Frame open = opened(fake, FileOperation::kList);
        EXPECT_EQ(number(open, Tag::kDepth), 3U);
        fake.send(open.header.stream, FrameType::kEvent, 0, entry("a", 2));
        fake.send(open.header.stream, FrameType::kEvent, 0,
                  entry("a/l", 3) + proto::Fields().put(Tag::kTarget, "b").bytes());
        fake.send(open.header.stream, FrameType::kEvent, 0, entry("a/\xff"));
        succeed(fake, open);
      });
  EXPECT_EQ(exchange.status, 200);
  const json::Value body = exchange.answer_json();
  const json::Value::Array& entries = *body.find("entries")->as_array();
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_EQ(*entries[0].find("type"), json::Value("directory"));
  EXPECT_EQ(*entries[1].find("target"), json::Value("b"));
  EXPECT_EQ(*entries[2].find("name_base64"), json::Value("YS//"));
}

TEST_F(V1Files, AGuestThatTellsTooLittleIsOurFault) {
  for (const char* below : {"/stat", "/list"}) {
    const FakeExchange exchange = ask("GET", at(below), "", [](FakeSupervisor& fake) {
      const proto::Frame open = fake.next(FrameType::kOpen);
      fake.send(open.header.stream, FrameType::kEvent, 0,
                proto::Fields().put(Tag::kName, "x").bytes());
      succeed(fake, open);
    });
    refusal(exchange, 500);
  }
}

TEST_F(V1Files, ABadRequestIsNamed) {
  sandbox();
  for (const auto& [method, target, body, message] :
       {std::tuple{"GET", at("", ""), "", "path: found nothing"},
        {"GET", at("", "path=x"), "", "path: found \"x\""},
        {"GET", at("", "path=/x&user=" + std::string(300, 'u')), "", "user: found 300 bytes"},
        {"PUT", at("", "path=/x&mode=512"), "", "mode: found \"512\""},
        {"PUT", at("", "path=/x&parents=1"), "", "parents: found \"1\""},
        {"DELETE", at("", "path=/x&recursive=1"), "", "recursive: found \"1\""},
        {"GET", at("/stat", "path=/x&follow=1"), "", "follow: found \"1\""},
        {"GET", at("/list", "path=/x&depth=0"), "", "depth: found \"0\""},
        {"PUT", at("/directory", "path=/x&mode=x"), "", "mode: found \"x\""},
        {"PUT", at("/link"), "{}", "target: found nothing"},
        {"POST", at("/move"), R"({"to":"y"})", "to: found \"y\""},
        {"PATCH", at(""), "{}", "the body: found nothing to change"},
        {"PATCH", at(""), R"({"mode":512})", "mode: found 512"}}) {
    EXPECT_THAT(refusal(call(method, target, body), 400), HasSubstr(message)) << target;
  }
}

// What any operation may fail with, so that each is known to answer it.
TEST_F(V1Files, EveryOperationPassesOnWhatFailedInside) {
  const std::initializer_list<std::tuple<const char*, const char*, const char*>> operations = {
      {"GET", "", ""},
      {"PUT", "", "x"},
      {"PATCH", "", R"({"mode":1})"},
      {"DELETE", "", ""},
      {"GET", "/stat", ""},
      {"GET", "/list", ""},
      {"PUT", "/directory", ""},
      {"PUT", "/link", R"({"target":"y"})"},
      {"POST", "/move", R"({"to":"/y"})"}};
  for (const auto& [method, below, body] : operations) {
    refusal(failing(method, at(below), body, Error::syscall("open", EACCES)), 403);
    refusal(failing(method, at(below), body, Error::syscall("open", ENOENT)), 404);
  }
  for (const char* below : {"/directory", "/link", "/move"}) {
    const std::string body = below[1] == 'l' ? R"({"target":"y"})" : R"({"to":"/y"})";
    refusal(
        failing(below[1] == 'm' ? "POST" : "PUT", at(below), body, Error::syscall("mkdir", EDQUOT)),
        507);
  }
}

TEST_F(V1Files, AListIsBounded) {
  const FakeExchange exchange = ask("GET", at("/list"), "", [](FakeSupervisor& fake) {
    const proto::Frame open = opened(fake, FileOperation::kList);
    const std::string long_entry = entry(std::string(60'000, 'x'));
    for (int count = 0; count < 300; ++count)
      fake.send(open.header.stream, FrameType::kEvent, 0, long_entry);
    succeed(fake, open);
  });
  EXPECT_THAT(refusal(exchange, 429), HasSubstr("16 MiB"));
}

}  // namespace
}  // namespace caisson::api::v1
