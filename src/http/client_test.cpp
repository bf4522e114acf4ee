#include "http/client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "http/connect.h"
#include "io/loop_for_test.h"

namespace caisson::http {
namespace {

using namespace std::chrono_literals;
using io::Async;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const RequestHead kGet{.method = "GET", .target = "/a", .headers = {{"Host", "x"}}};

class ClientTest : public ::testing::Test {
 protected:
  ClientTest() {
    auto pair = io::stream_pair(loop_);
    client_.emplace(std::move(pair[0]));
    server_ = std::move(pair[1]);
  }
  io::Loop loop_{1};
  std::optional<ClientExchange> client_;
  std::unique_ptr<io::Stream> server_;
};

TEST_F(ClientTest, SendsARequestWithTheFramingThatItIsGiven) {
  auto body = [&]() -> Async<void> {
    RequestHead head = kGet;
    head.headers.add("Content-Length", "77");
    const Status sent = co_await client_->send(head, {.kind = Framing::Kind::kChunked});
    EXPECT_TRUE(sent.has_value());
    const Status written = co_await client_->write("body");
    EXPECT_TRUE(written.has_value());
    const Status ended = co_await client_->end();
    EXPECT_TRUE(ended.has_value());
    client_.reset();
    const std::string bytes = co_await io::read_to_end(*server_);
    EXPECT_EQ(bytes,
              "GET /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
              "4\r\nbody\r\n0\r\n\r\n");
  };
  io::run_on(loop_, body);
}

TEST_F(ClientTest, ReadsTheAnswerBehindInterimOnes) {
  auto body = [&]() -> Async<void> {
    co_await client_->send(kGet, {});
    co_await io::send(*server_,
                      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n"
                      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n");
    const auto head = co_await client_->read_head();
    EXPECT_TRUE(head.has_value());
    if (head.has_value()) EXPECT_EQ(head->status, 200);
    const auto first = co_await client_->read_some(100);
    EXPECT_EQ(first.value_or(""), "one");
    co_await io::send(*server_, "0\r\n\r\n");
    const auto last = co_await client_->read_some(100);
    EXPECT_EQ(last.value_or("x"), "");
  };
  io::run_on(loop_, body);
}

TEST_F(ClientTest, AnAnswerMayEndWithTheConnection) {
  auto body = [&]() -> Async<void> {
    co_await client_->send(kGet, {});
    co_await io::send(*server_, "HTTP/1.0 200 OK\r\n\r\nall");
    co_await server_->finish();
    const auto head = co_await client_->read_head();
    EXPECT_TRUE(head.has_value());
    const auto all = co_await client_->read_some(100);
    EXPECT_EQ(all.value_or(""), "all");
    const auto last = co_await client_->read_some(100);
    EXPECT_EQ(last.value_or("x"), "");
  };
  io::run_on(loop_, body);
}

TEST_F(ClientTest, AnAnswerThatBreaksOffIsAnError) {
  auto body = [&]() -> Async<void> {
    co_await client_->send(kGet, {});
    co_await io::send(*server_, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nall");
    co_await server_->finish();
    const auto head = co_await client_->read_head();
    EXPECT_TRUE(head.has_value());
    co_await client_->read_some(100);
    const auto rest = co_await client_->read_some(100);
    EXPECT_FALSE(rest.has_value());
  };
  io::run_on(loop_, body);
}

TEST_F(ClientTest, AConnectionIsGivenBackAfterAWholeAnswer) {
  auto body = [&]() -> Async<void> {
    co_await client_->send(kGet, {});
    EXPECT_EQ(client_->release(), nullptr) << "nothing was answered";
    co_await io::send(*server_, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nall");
    co_await client_->read_head();
    EXPECT_EQ(client_->release(), nullptr) << "the body is not read";
    co_await client_->read_some(100);
    auto stream = client_->release();
    EXPECT_NE(stream, nullptr);
    if (stream == nullptr) co_return;
    ClientExchange second(std::move(stream));
    co_await second.send(kGet, {});
    co_await io::send(*server_, "HTTP/1.1 204 No Content\r\n\r\n");
    const auto head = co_await second.read_head();
    EXPECT_TRUE(head.has_value());
    EXPECT_NE(second.release(), nullptr);
  };
  io::run_on(loop_, body);
}

TEST_F(ClientTest, AConnectionThatEndsOrIsNotWholeIsNotGivenBack) {
  auto body = [&]() -> Async<void> {
    co_await client_->send(kGet, {.kind = Framing::Kind::kChunked});
    co_await io::send(*server_, "HTTP/1.1 204 No Content\r\n\r\n");
    co_await client_->read_head();
    EXPECT_EQ(client_->release(), nullptr) << "the request is not whole";
    co_await client_->end();
    co_await client_->send(kGet, {});
    co_await io::send(*server_, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    co_await client_->read_head();
    EXPECT_EQ(client_->release(), nullptr) << "the server ends it";
  };
  io::run_on(loop_, body);
}

struct BadAnswer {
  std::string bytes;
  Code code;
};

class ClientRefuses : public ClientTest, public ::testing::WithParamInterface<BadAnswer> {};

TEST_P(ClientRefuses, IsAnError) {
  auto body = [&]() -> Async<void> {
    co_await client_->send(kGet, {});
    co_await io::send(*server_, GetParam().bytes);
    co_await server_->finish();
    const auto head = co_await client_->read_head();
    EXPECT_FALSE(head.has_value());
    if (!head.has_value()) EXPECT_EQ(head.error().code(), GetParam().code);
  };
  io::run_on(loop_, body);
}

std::string many_interim() {
  std::string all;
  for (int i = 0; i < 20; ++i) all += "HTTP/1.1 100 Continue\r\n\r\n";
  return all;
}

INSTANTIATE_TEST_SUITE_P(Answers, ClientRefuses,
                         ::testing::Values(BadAnswer{"", Code::kUnavailable},
                                           BadAnswer{"HTTP/1.1 200 OK\r\n", Code::kUnavailable},
                                           BadAnswer{"SSH-2.0-x\r\n\r\n", Code::kInvalidArgument},
                                           BadAnswer{"HTTP/1.1 200 OK\n\n", Code::kInvalidArgument},
                                           BadAnswer{"HTTP/1.1 200 OK\r\nA: " +
                                                         std::string(70'000, 'x') + "\r\n\r\n",
                                                     Code::kInvalidArgument},
                                           BadAnswer{many_interim(), Code::kInvalidArgument}));

TEST_F(ClientTest, AHeadThatCannotBeWrittenIsAnError) {
  auto body = [&]() -> Async<void> {
    const Status sent = co_await client_->send({.method = "G T", .target = "/"}, {});
    EXPECT_FALSE(sent.has_value());
  };
  io::run_on(loop_, body);
}

}  // namespace
}  // namespace caisson::http
