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

// ---- forward
// --------------------------------------------------------------------------------------

// A server in front of another one.
class ForwardTest : public ::testing::Test {
 protected:
  // `backend`: what one connection of it does.
  using Backend = std::function<Async<void>(io::Stream&)>;
  void start(Backend backend) {
    backend_listener_ = std::move(*io::listen_tcp(loop_, "127.0.0.1:0"));
    auto serve = [](ForwardTest& test, Backend held) -> Async<void> {
      for (;;) {
        auto stream = co_await test.backend_listener_->accept();
        if (!stream.has_value()) co_return;
        co_await held(**stream);
      }
    };
    loop_.spawn(serve(*this, std::move(backend)));
    auto listener = std::move(*io::listen_tcp(loop_, "127.0.0.1:0"));
    address_ = listener->address();
    front_.emplace(loop_, limits_, [this](Exchange& exchange) { return pass(exchange); });
    front_->serve(std::move(listener));
  }
  Async<void> pass(Exchange& exchange) {
    auto stream = co_await io::connect_tcp(loop_, backend_listener_->address());
    VERIFY(stream.has_value());
    const Status status = co_await forward(exchange, exchange.request(), std::move(*stream));
    if (!status.has_value()) co_await exchange.respond({.status = 502}, status.error().message());
  }
  Async<std::unique_ptr<io::Stream>> connect() {
    auto stream = co_await io::connect_tcp(loop_, address_);
    VERIFY(stream.has_value());
    co_return std::move(*stream);
  }
  Async<std::string> talk(std::string bytes) {
    const auto stream = co_await connect();
    co_await io::send(*stream, std::move(bytes));
    const std::string answer = co_await io::read_to_end(*stream);
    co_return answer;
  }
  static Async<std::string> read_until(io::Stream& stream, std::string end) {
    std::string all;
    std::array<char, 1> piece;
    while (!all.ends_with(end)) {
      const auto count = co_await stream.read(piece);
      if (count.value_or(0) == 0) break;
      all += piece[0];
    }
    co_return all;
  }

  io::Loop loop_{1};
  Limits limits_;
  std::unique_ptr<io::Listener> backend_listener_;
  std::string address_;
  std::optional<Server> front_;
  std::string seen_;  // by the backend
};

TEST_F(ForwardTest, PassesRequestAndAnswerWithoutWhatIsForOneConnection) {
  start([this](io::Stream& stream) -> Async<void> {
    seen_ = co_await read_until(stream, "body");
    co_await io::send(stream,
                      "HTTP/1.1 201 Made\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nX-Own: 2\r\n"
                      "Keep-Alive: 5\r\nContent-Length: 6\r\n\r\nanswer");
  });
  auto body = [&]() -> Async<void> {
    const std::string answer = co_await talk(
        "POST /a%20b?c HTTP/1.1\r\nHost: example.com\r\nX-Own: 1\r\nX-Hop: 1\r\nTE: trailers\r\n"
        "Connection: close, X-Hop\r\nContent-Length: 4\r\n\r\nbody");
    EXPECT_EQ(seen_,
              "POST /a%20b?c HTTP/1.1\r\nHost: example.com\r\nX-Own: 1\r\nContent-Length: 4\r\n\r\n"
              "body");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 201 Made\r\n"));
    EXPECT_THAT(answer, HasSubstr("\r\nX-Own: 2\r\n"));
    EXPECT_THAT(answer, HasSubstr("\r\nContent-Length: 6\r\n"));
    EXPECT_THAT(answer, Not(HasSubstr("X-Hop")));
    EXPECT_THAT(answer, Not(HasSubstr("Keep-Alive")));
    EXPECT_THAT(answer, EndsWith("\r\n\r\nanswer"));
  };
  io::run_on(loop_, body);
}

TEST_F(ForwardTest, ChunkedBodiesAreChunkedAgain) {
  start([this](io::Stream& stream) -> Async<void> {
    seen_ = co_await read_until(stream, "0\r\n\r\n");
    co_await io::send(stream, "HTTP/1.1 200 OK\r\n\r\nuntil the end");
  });
  auto body = [&]() -> Async<void> {
    const std::string answer = co_await talk(
        "POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n"
        "Connection: close\r\n\r\n4;a=b\r\nbody\r\n0\r\nTrailer: x\r\n\r\n");
    EXPECT_THAT(seen_, EndsWith("\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"));
    EXPECT_THAT(seen_, Not(HasSubstr("Expect")));
    EXPECT_THAT(answer, HasSubstr("\r\nTransfer-Encoding: chunked\r\n"));
    EXPECT_THAT(answer, EndsWith("d\r\nuntil the end\r\n0\r\n\r\n"));
  };
  io::run_on(loop_, body);
}

TEST_F(ForwardTest, LargeBodiesGoBothWaysAtOnce) {
  constexpr std::size_t kSize = 3'000'000;
  // An echo that begins before it has the whole.
  start([](io::Stream& stream) -> Async<void> {
    co_await read_until(stream, "\r\n\r\n");
    co_await io::send(stream,
                      "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(kSize) + "\r\n\r\n");
    std::vector<char> piece(50'000);
    for (std::size_t total = 0; total < kSize;) {
      const auto count = co_await stream.read(piece);
      if (count.value_or(0) == 0) break;
      total += *count;
      co_await io::send(stream, std::string(piece.data(), *count));
    }
  });
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    auto writer = [&]() -> Async<void> {
      co_await io::send(*stream,
                        "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                        "Content-Length: " +
                            std::to_string(kSize) + "\r\n\r\n" + std::string(kSize, 'x'));
    };
    loop_.spawn(writer());
    const std::string answer = co_await io::read_to_end(*stream);
    EXPECT_EQ(answer.size() - answer.find("\r\n\r\n") - 4, kSize);
  };
  io::run_on(loop_, body);
}

TEST_F(ForwardTest, WithoutAnAnswerItIsTheCallersToGive) {
  start([](io::Stream& stream) -> Async<void> { co_await read_until(stream, "\r\n\r\n"); });
  auto body = [&]() -> Async<void> {
    const std::string answer =
        co_await talk("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 502 "));
  };
  io::run_on(loop_, body);
}

TEST_F(ForwardTest, AMalformedAnswerIsTheCallersToGive) {
  start([](io::Stream& stream) -> Async<void> {
    co_await read_until(stream, "\r\n\r\n");
    co_await io::send(stream,
                      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n");
  });
  auto body = [&]() -> Async<void> {
    const std::string answer =
        co_await talk("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 502 "));
    EXPECT_THAT(answer, HasSubstr("malformed answer"));
  };
  io::run_on(loop_, body);
}

TEST_F(ForwardTest, AnAnswerThatBreaksOffResetsTheClient) {
  start([](io::Stream& stream) -> Async<void> {
    co_await read_until(stream, "\r\n\r\n");
    co_await io::send(stream, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
  });
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    std::array<char, 4096> piece;
    bool reset = false;
    for (;;) {
      const auto count = co_await stream->read(piece);
      reset = !count.has_value();
      if (count.value_or(0) == 0) break;
    }
    EXPECT_TRUE(reset);
  };
  io::run_on(loop_, body);
}

TEST_F(ForwardTest, WhenTheClientGoesTheBackendIsToldByAReset) {
  io::Event arrived(loop_), reset(loop_);
  start([&](io::Stream& stream) -> Async<void> {
    co_await read_until(stream, "\r\n\r\n");
    arrived.notify();
    std::array<char, 16> piece;
    const auto count = co_await stream.read(piece);
    EXPECT_FALSE(count.has_value());
    reset.notify();
  });
  auto body = [&]() -> Async<void> {
    auto stream = co_await connect();
    co_await io::send(*stream, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    co_await arrived.wait();
    loop_.post([&] { stream.reset(); });
    co_await reset.wait();
  };
  io::run_on(loop_, body);
}

TEST_F(ForwardTest, ABodyThatBreaksOffIsNotTakenForTheWhole) {
  io::Event reset(loop_);
  start([&](io::Stream& stream) -> Async<void> {
    co_await read_until(stream, "half\r\n");
    std::array<char, 16> piece;
    const auto count = co_await stream.read(piece);
    EXPECT_FALSE(count.has_value());
    reset.notify();
  });
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(
        *stream,
        "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"
        "nonsense");
    co_await reset.wait();
  };
  io::run_on(loop_, body);
}

TEST_F(ForwardTest, AnAnswerBeforeTheBodyHasEndedIsPassedOn) {
  start([](io::Stream& stream) -> Async<void> {
    co_await read_until(stream, "\r\n\r\n");
    co_await io::send(stream, "HTTP/1.1 413 Too much\r\nContent-Length: 0\r\n\r\n");
    co_await stream.finish();
    co_await io::read_to_end(stream);
  });
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream,
                      "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\nfirst");
    const std::string head = co_await read_until(*stream, "\r\n\r\n");
    EXPECT_THAT(head, StartsWith("HTTP/1.1 413 Too much\r\n"));
    EXPECT_THAT(head, HasSubstr("\r\nConnection: close\r\n"));
    co_await io::send(*stream, "more");
    const std::string nothing = co_await io::read_to_end(*stream);
    EXPECT_EQ(nothing, "");
  };
  io::run_on(loop_, body);
}

TEST_F(ForwardTest, AnUpgradePassesBytesBothWays) {
  start([this](io::Stream& stream) -> Async<void> {
    seen_ = co_await read_until(stream, "\r\n\r\n");
    co_await io::send(stream,
                      "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                      "Upgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nhello ");
    const std::string bytes = co_await read_until(stream, "!");
    co_await io::send(stream, "you said " + bytes);
  });
  auto body = [&]() -> Async<void> {
    const auto stream = co_await connect();
    co_await io::send(*stream,
                      "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: keep-alive, Upgrade\r\n"
                      "Upgrade: websocket\r\nSec-WebSocket-Key: y\r\n\r\nearly ");
    const std::string head = co_await read_until(*stream, "\r\n\r\n");
    EXPECT_THAT(seen_, HasSubstr("\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"));
    EXPECT_THAT(head, StartsWith("HTTP/1.1 101 Switching Protocols\r\n"));
    EXPECT_THAT(head, HasSubstr("\r\nUpgrade: websocket\r\n"));
    EXPECT_THAT(head, HasSubstr("\r\nConnection: Upgrade\r\n"));
    EXPECT_THAT(head, HasSubstr("\r\nSec-WebSocket-Accept: x\r\n"));
    co_await io::send(*stream, "late!");
    const std::string rest = co_await io::read_to_end(*stream);
    EXPECT_EQ(rest, "hello you said early late!");
  };
  io::run_on(loop_, body);
}

TEST_F(ForwardTest, ASwitchThatNobodyAskedForIsTheCallersToAnswer) {
  start([](io::Stream& stream) -> Async<void> {
    co_await read_until(stream, "\r\n\r\n");
    co_await io::send(stream, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n");
  });
  auto body = [&]() -> Async<void> {
    const std::string answer =
        co_await talk("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 502 "));
  };
  io::run_on(loop_, body);
}

}  // namespace
}  // namespace caisson::http
