// /files and ports, over a guest that a script plays.
#include "api/e2b/data_plane_for_test.h"
#include "api/e2b/port_proxy.h"
#include "api/e2b/signature.h"
#include "api/e2b/wire.h"
#include "http/gzip.h"

namespace caisson::api::e2b {
namespace {

using proto::FileOperation;

class Files : public DataPlaneTest {
 protected:
  static proto::Frame expect_file(FakeSupervisor& at, FileOperation operation,
                                  std::string_view path) {
    proto::Frame open = at.next(FrameType::kOpen);
    EXPECT_EQ(fields(open).number_or_none(Tag::kOperation), static_cast<std::uint64_t>(operation));
    EXPECT_EQ(text(open, Tag::kPath), path);
    return open;
  }
  static void tell_file(FakeSupervisor& at, std::string_view path, std::string_view bytes) {
    tell_user(at);
    const proto::Frame open = expect_file(at, FileOperation::kRead, path);
    event(at, open, file_of(bytes.size()));
    if (!bytes.empty()) at.out(open.header.stream, bytes);
    close(at, open);
  }
  // Takes one upload and says that it is well; gives its bytes.
  static std::string take_file(FakeSupervisor& at, std::string_view path) {
    const proto::Frame open = expect_file(at, FileOperation::kWrite, path);
    EXPECT_EQ(fields(open).number_or_none(Tag::kUid), 1000u);
    EXPECT_EQ(fields(open).number_or_none(Tag::kRecursive), 1u);
    std::string bytes = take_input(at);
    event(at, open, proto::Fields().put_u64(Tag::kSize, bytes.size()));
    close(at, open);
    return bytes;
  }
};

TEST_F(Files, ADownloadIsTheFile) {
  play([](FakeSupervisor& at) { tell_file(at, "/home/user/a", "hello"); });
  const auto answer = ask("GET", "/files?path=a");
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->answer, "hello");
  EXPECT_EQ(answer->headers.get("Content-Length"), "5");
  EXPECT_EQ(answer->headers.get("Content-Disposition"), "inline; filename=\"a\"");
  EXPECT_TRUE(answer->ended);
}

TEST_F(Files, ASignedUrlActsForItsUserWhateverTheHeadersSay) {
  std::string signature = sign_file("a", FileAccess::kRead, "", "tok", std::nullopt);
  for (std::size_t at = 0; (at = signature.find('+', at)) != std::string::npos;)
    signature.replace(at, 1, "%2B");
  play([](FakeSupervisor& at) { tell_file(at, "/home/user/a", "hello"); });
  // Of "root:".
  FakeExchange exchange("GET", "/files?path=a&signature=" + signature,
                        {{"Authorization", "Basic cm9vdDo="}});
  run(loop_, plane_.serve(exchange, {"abc", kEnvdPort}));
  EXPECT_EQ(exchange.status, 200);
  EXPECT_EQ(exchange.answer, "hello");
}

TEST_F(Files, AnEmptyFileHasALengthToo) {
  play([](FakeSupervisor& at) { tell_file(at, "/a", ""); });
  const auto answer = ask("GET", "/files?path=/a", {{"Accept-Encoding", "gzip"}});
  EXPECT_EQ(answer->headers.get("Content-Length"), "0");
  EXPECT_FALSE(answer->headers.has("Content-Encoding"));
}

TEST_F(Files, AFileOfProcIsNotAsEmptyAsItSays) {
  play([](FakeSupervisor& at) {
    tell_user(at);
    const proto::Frame open = at.next(FrameType::kOpen);
    event(at, open, file_of(0));
    at.out(open.header.stream, "Linux");
    close(at, open);
  });
  const auto answer = ask("GET", "/files?path=/proc/version");
  EXPECT_EQ(answer->answer, "Linux");
  EXPECT_FALSE(answer->headers.has("Content-Length"));
}

TEST_F(Files, CompressedWhereThatIsAskedFor) {
  play([](FakeSupervisor& at) {
    tell_file(at, "/a", "hello");
    tell_user(at);
  });
  const auto answer = ask("GET", "/files?path=/a", {{"Accept-Encoding", "gzip"}});
  EXPECT_EQ(answer->headers.get("Content-Encoding"), "gzip");
  http::Gunzip gunzip;
  gunzip.feed(answer->answer);
  EXPECT_EQ(gunzip.next().value(), "hello");
  EXPECT_EQ(ask("GET", "/files?path=/a", {{"Accept-Encoding", "identity;q=0"}})->status, 406);
}

TEST_F(Files, APartOfAFile) {
  play([](FakeSupervisor& at) {
    for (int i = 0; i < 2; ++i) {
      tell_user(at);
      const proto::Frame stat = expect_file(at, FileOperation::kStat, "/a");
      event(at, stat, file_of(10));
      close(at, stat);
      const proto::Frame open = expect_file(at, FileOperation::kRead, "/a");
      if (i == 0) {
        EXPECT_EQ(fields(open).number_or_none(Tag::kOffset), 2u);
        EXPECT_EQ(fields(open).number_or_none(Tag::kSize), 3u);
      }
      event(at, open, file_of(10));
      if (i == 0) at.out(open.header.stream, "cde");
      close(at, open);
    }
  });
  const auto answer = ask("GET", "/files?path=/a", {{"Range", "bytes=2-4"}});
  EXPECT_EQ(answer->status, 206);
  EXPECT_EQ(answer->answer, "cde");
  EXPECT_EQ(answer->headers.get("Content-Range"), "bytes 2-4/10");
  const auto outside = ask("GET", "/files?path=/a", {{"Range", "bytes=10-"}});
  EXPECT_EQ(outside->status, 416);
  EXPECT_EQ(outside->headers.get("Content-Range"), "bytes */10");
}

TEST_F(Files, OneThatBecomesShorterIsCutOff) {
  play([](FakeSupervisor& at) {
    tell_user(at);
    const proto::Frame open = at.next(FrameType::kOpen);
    event(at, open, file_of(10));
    at.out(open.header.stream, "short");
    close(at, open);
  });
  EXPECT_FALSE(ask("GET", "/files?path=/a")->ended);
}

TEST_F(Files, WhatIsMissingOrADirectoryIsSaidSo) {
  play([](FakeSupervisor& at) {
    tell_user(at);
    fail_with(at, at.next(FrameType::kOpen), Error::syscall("open /no", ENOENT));
    tell_user(at);
    fail_with(at, at.next(FrameType::kOpen), Error::precondition("/d is not a regular file"));
    const proto::Frame stat = expect_file(at, FileOperation::kStat, "/d");
    proto::Fields directory;
    directory.put_u8(Tag::kFileType, static_cast<std::uint8_t>(proto::FileType::kDirectory));
    event(at, stat, directory);
    close(at, stat);
  });
  const auto missing = ask("GET", "/files?path=/no");
  EXPECT_EQ(missing->status, 404);
  EXPECT_EQ(missing->answer, R"({"code":404,"message":"path '/no' does not exist"})");
  const auto directory = ask("GET", "/files?path=/d");
  EXPECT_EQ(directory->status, 400);
  EXPECT_EQ(directory->answer, R"({"code":400,"message":"path '/d' is a directory"})");
}

TEST_F(Files, ASignatureOrTheTokenIsNeeded) {
  const auto denied = [&](const char* target, http::Headers headers) {
    FakeExchange exchange("GET", target, std::move(headers));
    run(loop_, plane_.serve(exchange, {"abc", kEnvdPort}));
    EXPECT_EQ(exchange.status, 401);
    return exchange.answer;
  };
  EXPECT_EQ(denied("/files?path=a", {}),
            R"({"code":401,"message":"missing signature query parameter"})");
  EXPECT_EQ(denied("/files?path=a&signature=x", {}),
            R"({"code":401,"message":"invalid signature"})");
  EXPECT_EQ(denied("/files?path=a", {{"X-Access-Token", "x"}}),
            R"({"code":401,"message":"access token present in header but does not match"})");
}

TEST_F(Files, AnUploadInPartsAnswersWithTheFilesAlone) {
  std::string one, two;
  play([&](FakeSupervisor& at) {
    tell_user(at);
    one = take_file(at, "/home/user/a");
    two = take_file(at, "/b/c");
  });
  const auto answer = ask("POST", "/files", {{"Content-Type", "multipart/form-data; boundary=b"}},
                          "--b\r\nContent-Disposition: form-data; name=\"file\"; "
                          "filename=\"a\"\r\n\r\none\r\n--b\r\n"
                          "Content-Disposition: form-data; name=\"other\"\r\n\r\nx\r\n--b\r\n"
                          "Content-Disposition: form-data; name=\"file\"; "
                          "filename=\"/b/c\"\r\n\r\ntwo\r\n--b--\r\n");
  finish_script();
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->answer, R"([{"path":"/home/user/a","name":"a","type":"file"},)"
                            R"({"path":"/b/c","name":"c","type":"file"}])");
  EXPECT_EQ(one, "one");
  EXPECT_EQ(two, "two");
}

TEST_F(Files, APlainUploadWithMetadataAndGzip) {
  std::string taken;
  play([&](FakeSupervisor& at) {
    tell_user(at);
    taken = take_file(at, "/a");
  });
  http::Gzip gzip;
  std::string body = gzip.feed("hello");
  body += gzip.finish();
  const auto answer = ask("POST", "/files?path=/a",
                          {{"Content-Type", "application/octet-stream"},
                           {"Content-Encoding", "gzip"},
                           {"X-Metadata-Author", "me"}},
                          body);
  finish_script();
  EXPECT_EQ(answer->answer,
            R"([{"path":"/a","name":"a","type":"file","metadata":{"author":"me"}}])");
  EXPECT_EQ(taken, "hello");
}

TEST_F(Files, AFullDiskIs507) {
  play([](FakeSupervisor& at) {
    tell_user(at);
    fail_with(at, at.next(FrameType::kOpen), Error::syscall("write /a", ENOSPC));
    while (at.next().header.stream != 0) continue;  // what is on its way already
  });
  const auto answer = ask("POST", "/files?path=/a", {{"Content-Type", "application/octet-stream"}},
                          std::string(1 << 20, 'x'));
  EXPECT_EQ(answer->status, 507);
  EXPECT_EQ(answer->answer, R"({"code":507,"message":"not enough disk space available"})");
}

TEST_F(Files, UploadsThatMakeNoSenseAreRefused) {
  const auto refused = [&](const char* target, http::Headers headers, std::string body,
                           int starts) {
    play([starts](FakeSupervisor& at) {
      tell_user(at);
      for (int i = 0; i < starts; ++i) take_file(at, "/a");
    });
    const auto answer = ask("POST", target, std::move(headers), std::move(body));
    EXPECT_EQ(answer->status, 400);
    client_.reset();
    return std::string(text_of(answer->answer_json(), "message"));
  };
  const http::Headers parts = {{"Content-Type", "multipart/form-data; boundary=b"}};
  const std::string part = "--b\r\nContent-Disposition: form-data; name=\"file\"";
  EXPECT_EQ(refused("/files", {{"Content-Type", "application/octet-stream"}}, "x", 0),
            "an upload of application/octet-stream needs the query 'path'");
  EXPECT_EQ(refused("/files", {{"Content-Type", "text/plain"}}, "x", 0),
            "the content is 'text/plain', not multipart/form-data");
  EXPECT_EQ(
      refused("/files?path=/a",
              {{"Content-Type", "application/octet-stream"}, {"Content-Encoding", "br"}}, "x", 0),
      "Content-Encoding: allowed are gzip and identity");
  EXPECT_EQ(refused("/files", parts, part + "\r\n\r\nx\r\n--b--", 0),
            "a part 'file' needs a filename, or the query a path");
  EXPECT_EQ(refused("/files", parts, "--b\r\n", 0), "the multipart body is cut off");
  EXPECT_EQ(
      refused("/files?path=/a", parts, part + "\r\n\r\nx\r\n" + part + "\r\n\r\ny\r\n--b--", 1),
      "you cannot upload several files to the same path '/a'; only the first was written");
}

TEST_F(Files, BadMetadataIsRefusedBeforeAnything) {
  EXPECT_EQ(ask("POST", "/files?path=/a",
                {{"Content-Type", "application/octet-stream"}, {"X-Metadata-a", "\xff"}}, "x")
                ->status,
            400);
}

TEST_F(Files, AComposition) {
  play([](FakeSupervisor& at) {
    for (int i = 0; i < 2; ++i) {
      tell_user(at);
      const proto::Frame open = expect_file(at, FileOperation::kCompose, "/home/user/all");
      EXPECT_EQ(fields(open).all(Tag::kSource),
                (std::vector<std::string_view>{"/home/user/1", "/2"}));
      if (i == 0) {
        event(at, open, file_of(2));
        close(at, open);
      } else {
        fail_with(at, open, Error::syscall("open /2", ENOENT));
      }
    }
  });
  const char* const body = R"({"source_paths":["1","/2"],"destination":"all"})";
  EXPECT_EQ(ask("POST", "/files/compose", {}, body)->answer,
            R"({"path":"/home/user/all","name":"all","type":"file"})");
  EXPECT_EQ(ask("POST", "/files/compose", {}, body)->status, 404);
}

TEST_F(Files, ACompositionOfNothingIsRefused) {
  play([](FakeSupervisor& at) {
    for (int i = 0; i < 3; ++i) tell_user(at);
  });
  for (const char* body : {R"({"source_paths":[],"destination":"a"})", R"({"source_paths":["a"]})",
                           R"({"source_paths":[7],"destination":"a"})", "7"})
    EXPECT_EQ(ask("POST", "/files/compose", {}, body)->status, 400) << body;
}

class Ports : public DataPlaneTest {
 protected:
  // Reads a whole request head and answers.
  static std::string take_head(FakeSupervisor& at) {
    std::string head;
    while (head.find("\r\n\r\n") == std::string::npos) {
      const proto::Frame frame = at.next();
      if (frame.header.type == FrameType::kClose) break;
      head += frame.payload;
    }
    return head;
  }
  static proto::Frame tell_connected(FakeSupervisor& at) {
    proto::Frame open = at.next(FrameType::kOpen);
    EXPECT_EQ(fields(open).number_or_none(Tag::kPort), 8080u);
    event(at, open, proto::Fields().put(Tag::kAddress, "127.0.0.1"));
    return open;
  }
};

TEST_F(Ports, ARequestIsPassedThrough) {
  std::string head;
  play([&](FakeSupervisor& at) {
    const proto::Frame open = tell_connected(at);
    head = take_head(at);
    at.out(open.header.stream, "HTTP/1.1 201 Made\r\nContent-Length: 5\r\nX-A: b\r\n\r\nhel");
    at.out(open.header.stream, "lo");
    close(at, open);
  });
  const auto answer = ask("GET", "/a?b=c", {{"Host", "8080-abc.example.com"}}, "", 8080);
  finish_script();
  EXPECT_EQ(answer->status, 201);
  EXPECT_EQ(answer->answer, "hello");
  EXPECT_EQ(answer->headers.get("X-A"), "b");
  EXPECT_TRUE(head.starts_with("GET /a?b=c HTTP/1.1\r\n")) << head;
  EXPECT_NE(head.find("Host: 8080-abc.example.com\r\n"), std::string::npos);
  EXPECT_NE(head.find("Connection: close\r\n"), std::string::npos);
}

TEST_F(Ports, AClosedPortIsSaidSo) {
  play([](FakeSupervisor& at) {
    fail_with(at, at.next(FrameType::kOpen), Error::syscall("connect", ECONNREFUSED));
  });
  const auto answer = ask("GET", "/", {}, "", 8080);
  EXPECT_EQ(answer->status, 502);
  EXPECT_EQ(answer->answer,
            R"({"sandboxId":"abc","message":"The sandbox is running but port is not open",)"
            R"("port":8080,"code":502})");
}

TEST_F(Ports, WhatIsNoHttpIsNotPassedOn) {
  play([](FakeSupervisor& at) {
    const proto::Frame open = tell_connected(at);
    take_head(at);
    at.out(open.header.stream, "SSH-2.0-x\r\n\r\n");
    close(at, open);
  });
  EXPECT_EQ(ask("GET", "/", {}, "", 8080)->status, 502);
}

TEST_F(Ports, InterimAnswersAreLeftOutUpToABound) {
  for (const int count : {16, 17}) {
    play([count](FakeSupervisor& at) {
      const proto::Frame open = tell_connected(at);
      take_head(at);
      for (int i = 0; i < count; ++i) at.out(open.header.stream, "HTTP/1.1 103 Early\r\n\r\n");
      at.out(open.header.stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
      close(at, open);
    });
    EXPECT_EQ(ask("GET", "/", {}, "", 8080)->status, count == 16 ? 200 : 502);
  }
}

TEST_F(Ports, SmallChunksOfOneMessageAreOneWrite) {
  play([](FakeSupervisor& at) {
    const proto::Frame open = tell_connected(at);
    take_head(at);
    at.out(open.header.stream, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    at.out(open.header.stream, "1\r\na\r\n1\r\nb\r\n1\r\nc\r\n0\r\n\r\n");
    close(at, open);
  });
  EXPECT_EQ(ask("GET", "/", {}, "", 8080)->writes, std::vector<std::string>{"abc"});
}

TEST_F(Ports, ABodyThatBreaksOffIsTheClientsFault) {
  play([](FakeSupervisor& at) {
    tell_connected(at);
    while (at.next().header.type != FrameType::kClose) continue;
  });
  FakeExchange exchange("POST", "/", {}, "hello");
  exchange.read_error = Error::invalid("a chunk without a size");
  run(loop_, plane_.serve(exchange, {"abc", 8080}));
  EXPECT_EQ(exchange.status, 400);
  EXPECT_EQ(exchange.answer,
            R"({"sandboxId":"abc","message":"The request's body: a chunk without a size",)"
            R"("port":8080,"code":400})");
}

TEST_F(Ports, TunnelsAreNotMade) {
  EXPECT_EQ(ask("CONNECT", "/", {}, "", 8080)->status, 405);
}

TEST_F(Ports, AnAnswerThatIsCutOffStaysSo) {
  play([](FakeSupervisor& at) {
    const proto::Frame open = tell_connected(at);
    take_head(at);
    at.out(open.header.stream, "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello");
    close(at, open);
  });
  EXPECT_TRUE(ask("GET", "/", {}, "", 8080)->aborted);
}

TEST_F(Ports, TheTrafficTokenIsAskedForWhereTrafficIsNotPublic) {
  sandbox_->view_now.public_traffic = false;
  sandbox_->view_now.traffic_token = "traffic";
  const auto missing = ask("GET", "/", {}, "", 8080);
  EXPECT_EQ(missing->status, 403);
  EXPECT_EQ(missing->answer,
            R"({"sandboxId":"abc","message":"Sandbox is secured with traffic access token. Token )"
            R"(header 'e2b-traffic-access-token' is missing","code":403})");
  EXPECT_NE(
      ask("GET", "/", {{"E2B-Traffic-Access-Token", "x"}}, "", 8080)->answer.find("is invalid"),
      std::string::npos);
  // The data plane has a token of its own.
  EXPECT_EQ(ask("GET", "/health")->status, 204);
}

TEST(ForwardedHead, IsOneMeaningAndTellsWhereItCameFrom) {
  http::RequestHead head;
  head.method = "POST";
  head.target = "/x";
  head.headers = {{"Host", "8080-abc.example.com"},
                  {"Connection", "X-Hop"},
                  {"X-Hop", "1"},
                  {"Transfer-Encoding", "chunked"},
                  {"E2b-Traffic-Access-Token", "secret"}};
  const http::Headers sent =
      forwarded_head(head, 8080, "localhost:${PORT}", {"10.0.0.1:5000", true}).headers;
  EXPECT_EQ(sent.get("Host"), "localhost:8080");
  EXPECT_EQ(sent.get("X-Forwarded-Host"), "8080-abc.example.com");
  EXPECT_EQ(sent.get("X-Forwarded-Proto"), "https");
  EXPECT_EQ(sent.get("X-Forwarded-For"), "10.0.0.1");
  EXPECT_EQ(sent.get("Transfer-Encoding"), "chunked");
  EXPECT_EQ(sent.get("Connection"), "close");
  EXPECT_FALSE(sent.has("X-Hop"));
  EXPECT_FALSE(sent.has("E2b-Traffic-Access-Token"));
}

TEST(ForwardedHead, AnAbsoluteTargetIsPassedOnInOriginForm) {
  const auto sent = [](std::string_view target) {
    http::RequestHead head;
    head.target = target;
    return forwarded_head(head, 8080, "", {"10.0.0.1:5000", false}).target;
  };
  EXPECT_EQ(sent("http://8080-abc.example.com/a?b=c"), "/a?b=c");
  EXPECT_EQ(sent("http://example.com"), "/");
  EXPECT_EQ(sent(std::string("http://127.0.0.1") + "?b"), "/?b");
  EXPECT_EQ(sent("/a?u=http://example.com/y"), "/a?u=http://example.com/y");
  EXPECT_EQ(sent("*"), "*");
}

TEST(ForwardedHead, ARequestWithoutAHostGetsOne) {
  const http::Headers sent = forwarded_head({}, 8080, "", {"10.0.0.1:5000", false}).headers;
  EXPECT_EQ(sent.get("Host"), "localhost:8080");
  EXPECT_FALSE(sent.has("X-Forwarded-Host"));
}

TEST(ForwardedHead, AnUpgradeIsPassedOn) {
  http::RequestHead head;
  head.headers = {{"Host", "h"}, {"Connection", "keep-alive, Upgrade"}, {"Upgrade", "websocket"}};
  const http::Headers sent = forwarded_head(head, 1, "", {"[::1]:5", false}).headers;
  EXPECT_EQ(sent.get("Connection"), "Upgrade");
  EXPECT_EQ(sent.get("Upgrade"), "websocket");
  EXPECT_EQ(sent.get("Host"), "h");
}

}  // namespace
}  // namespace caisson::api::e2b
