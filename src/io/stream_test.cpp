#include "io/stream.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "io/loop_for_test.h"

namespace caisson::io {
namespace {

using namespace std::chrono_literals;

struct Connected {
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Stream> client, server;
};

Async<Connected> connect_pair(Loop& loop) {
  Connected made;
  made.listener = std::move(*listen_tcp(loop, "127.0.0.1:0"));
  auto client = co_await connect_tcp(loop, made.listener->address());
  VERIFY(client.has_value());
  auto server = co_await made.listener->accept();
  VERIFY(server.has_value());
  made.client = std::move(*client);
  made.server = std::move(*server);
  co_return made;
}

TEST(Stream, BytesGoBothWaysOverTcp) {
  Loop loop(1);
  auto body = [&]() -> Async<void> {
    Connected pair = co_await connect_pair(loop);
    co_await send(*pair.client, "to the server");
    co_await pair.client->finish();
    const std::string came = co_await read_to_end(*pair.server);
    EXPECT_EQ(came, "to the server");
    co_await send(*pair.server, "and back");
    co_await pair.server->finish();
    const std::string back = co_await read_to_end(*pair.client);
    EXPECT_EQ(back, "and back");
  };
  run_on(loop, body);
}

TEST(Stream, TheListenerNamesThePortThatTheKernelChoseAndTheStreamItsPeer) {
  Loop loop(1);
  auto body = [&]() -> Async<void> {
    Connected pair = co_await connect_pair(loop);
    EXPECT_NE(pair.listener->port(), 0);
    EXPECT_EQ(pair.listener->address(), "127.0.0.1:" + std::to_string(pair.listener->port()));
    EXPECT_EQ(pair.client->peer(), pair.listener->address());
    EXPECT_EQ(pair.server->peer().find("127.0.0.1:"), 0U);
  };
  run_on(loop, body);
}

TEST(Stream, WhoeverWaitsForBytesHoldsNoRoom) {
  Loop loop(1);
  auto body = [&]() -> Async<void> {
    Connected pair = co_await connect_pair(loop);
    pair.server->set_timeout(1ms);
    const Status none = co_await pair.server->wait_readable();
    EXPECT_EQ(none.error().code(), Code::kDeadlineExceeded);
    co_await send(*pair.client, "ab");
    pair.server->set_timeout({});
    char byte = 0;
    // What is there is told again as long as it is not read.
    for (int i = 0; i < 2; ++i) {
      const Status readable = co_await pair.server->wait_readable();
      EXPECT_TRUE(readable.has_value());
      const auto count = co_await pair.server->read({&byte, 1});
      EXPECT_EQ(count.value_or(0), 1u);
    }
    EXPECT_EQ(byte, 'b');
    co_await pair.client->finish();
    const Status end = co_await pair.server->wait_readable();
    EXPECT_TRUE(end.has_value());
    const auto nothing = co_await pair.server->read({&byte, 1});
    EXPECT_EQ(nothing.value_or(9), 0u);
    pair.server->close();
    const Status closed = co_await pair.server->wait_readable();
    EXPECT_EQ(closed.error().code(), Code::kCancelled);
  };
  run_on(loop, body);
}

TEST(Stream, ASlowReaderHoldsTheWriterBack) {
  Loop loop(1);
  auto pair = stream_pair(loop);
  const std::string large(8 << 20, 'x');
  bool written = false;
  auto writer = [&]() -> Async<void> {
    co_await send(*pair[0], large);
    written = true;
    co_await pair[0]->finish();
  };
  auto body = [&]() -> Async<void> {
    loop.spawn(writer());
    std::vector<char> piece(64 << 10);
    std::size_t total = 0;
    for (;;) {
      const auto count = co_await pair[1]->read(piece);
      EXPECT_TRUE(count.has_value());
      if (!count.has_value() || *count == 0) break;
      total += *count;
      // The kernel holds less than half of it.
      if (total < large.size() / 2) EXPECT_FALSE(written);
    }
    EXPECT_EQ(total, large.size());
  };
  run_on(loop, body);
}

TEST(Stream, WithoutProgressInTheTimeAllowedReadAndWriteEnd) {
  Loop loop(1);
  auto pair = stream_pair(loop);
  auto body = [&]() -> Async<void> {
    pair[0]->set_timeout(1ms);
    std::array<char, 16> piece;
    const auto count = co_await pair[0]->read(piece);
    EXPECT_FALSE(count.has_value());
    if (!count.has_value()) EXPECT_EQ(count.error().code(), Code::kDeadlineExceeded);
    const std::string large(8 << 20, 'x');
    const Status written = co_await pair[0]->write(large);
    EXPECT_FALSE(written.has_value());
    if (!written.has_value()) EXPECT_EQ(written.error().code(), Code::kDeadlineExceeded);
    // It is usable afterwards.
    pair[0]->set_timeout(0s);
    co_await send(*pair[1], "late");
    const auto late = co_await pair[0]->read(piece);
    EXPECT_EQ(late.value_or(0), 4U);
  };
  run_on(loop, body);
}

TEST(Stream, CloseWakesWhoReadsAndWhoWrites) {
  Loop loop(1);
  auto pair = stream_pair(loop);
  Event ended(loop);
  int cancelled = 0;
  const std::string large(8 << 20, 'x');
  auto reader = [&]() -> Async<void> {
    std::array<char, 16> piece;
    const auto count = co_await pair[0]->read(piece);
    EXPECT_FALSE(count.has_value());
    if (!count.has_value() && count.error().code() == Code::kCancelled) ++cancelled;
    ended.notify();
  };
  auto writer = [&]() -> Async<void> {
    const Status status = co_await pair[0]->write(large);
    EXPECT_FALSE(status.has_value());
    if (!status.has_value() && status.error().code() == Code::kCancelled) ++cancelled;
    ended.notify();
  };
  auto body = [&]() -> Async<void> {
    loop.spawn(reader());
    loop.spawn(writer());
    co_await Loop::sleep(0s);
    pair[0]->close();
    while (cancelled < 2) co_await ended.wait();
    std::array<char, 16> piece;
    const auto after = co_await pair[0]->read(piece);
    EXPECT_FALSE(after.has_value());
    if (!after.has_value()) EXPECT_EQ(after.error().code(), Code::kCancelled);
  };
  run_on(loop, body);
}

TEST(Stream, ItsEndWakesWhoReads) {
  Loop loop(1);
  auto pair = stream_pair(loop);
  auto body = [&]() -> Async<void> {
    loop.post([&] { pair[0].reset(); });
    std::array<char, 16> piece;
    const auto count = co_await pair[0]->read(piece);
    EXPECT_FALSE(count.has_value());
    if (!count.has_value()) EXPECT_EQ(count.error().code(), Code::kCancelled);
  };
  run_on(loop, body);
}

TEST(Stream, AResetIsNoEnd) {
  Loop loop(1);
  auto body = [&]() -> Async<void> {
    Connected pair = co_await connect_pair(loop);
    co_await send(*pair.server, "a part");
    std::array<char, 16> piece;
    const auto part = co_await pair.client->read(piece);
    EXPECT_EQ(part.value_or(0), 6U);
    pair.server->close(Stream::Close::kReset);
    const auto rest = co_await pair.client->read(piece);
    EXPECT_FALSE(rest.has_value());
    if (!rest.has_value()) EXPECT_EQ(rest.error().code(), Code::kUnavailable);
  };
  run_on(loop, body);
}

TEST(Stream, WritingToWhoHasGoneIsAnErrorAndNoSignal) {
  Loop loop(1);
  auto pair = stream_pair(loop);
  auto body = [&]() -> Async<void> {
    pair[1].reset();
    const Status status = co_await pair[0]->write("to nobody");
    EXPECT_FALSE(status.has_value());
    if (!status.has_value()) EXPECT_EQ(status.error().code(), Code::kUnavailable);
  };
  run_on(loop, body);
}

TEST(Stream, OneThatNeverWaitsLetsOthersRun) {
  Loop loop(1);
  auto pair = stream_pair(loop);
  bool other_ran = false;
  auto body = [&]() -> Async<void> {
    co_await send(*pair[0], std::string(1000, 'x'));
    loop.post([&] { other_ran = true; });
    std::array<char, 1> piece;
    for (int i = 0; i < 1000; ++i) co_await pair[1]->read(piece);
    EXPECT_TRUE(other_ran);
  };
  run_on(loop, body);
}

TEST(Connect, OverAUnixSocket) {
  Loop loop(1);
  char directory[] = "/tmp/caisson-stream-XXXXXX";
  ASSERT_NE(::mkdtemp(directory), nullptr);
  const std::string path = std::string(directory) + "/socket";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  Fd listening(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::bind(listening.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ASSERT_EQ(::listen(listening.get(), 1), 0);
  auto listener = adopt_listener(loop, std::move(listening));
  ASSERT_TRUE(listener.has_value());
  auto body = [&]() -> Async<void> {
    auto client = co_await connect_unix(loop, path);
    EXPECT_TRUE(client.has_value());
    auto server = co_await (*listener)->accept();
    EXPECT_TRUE(server.has_value());
    if (!client.has_value() || !server.has_value()) co_return;
    EXPECT_EQ((*client)->peer(), "");
    co_await send(*(*client), "x");
    std::array<char, 16> piece;
    const auto count = co_await (*server)->read(piece);
    EXPECT_EQ(count.value_or(0), 1U);
  };
  run_on(loop, body);
  std::filesystem::remove_all(directory);
}

TEST(Connect, ToNobodyIsUnavailableAndNamesTheAddress) {
  Loop loop(1);
  auto body = [&]() -> Async<void> {
    const auto by_path = co_await connect_unix(loop, "/nowhere/socket");
    EXPECT_FALSE(by_path.has_value());
    if (!by_path.has_value()) {
      EXPECT_EQ(by_path.error().code(), Code::kUnavailable);
      EXPECT_NE(by_path.error().message().find("/nowhere/socket"), std::string::npos);
    }
    auto listener = std::move(*listen_tcp(loop, "127.0.0.1:0"));
    const std::string address = listener->address();
    listener.reset();
    const auto by_tcp = co_await connect_tcp(loop, address);
    EXPECT_FALSE(by_tcp.has_value());
    if (!by_tcp.has_value()) {
      EXPECT_EQ(by_tcp.error().code(), Code::kUnavailable);
      EXPECT_NE(by_tcp.error().message().find(address), std::string::npos);
    }
  };
  run_on(loop, body);
}

TEST(Connect, RefusesMalformedAddresses) {
  Loop loop(1);
  auto body = [&]() -> Async<void> {
    const auto too_long = co_await connect_unix(loop, std::string(200, 'x'));
    EXPECT_FALSE(too_long.has_value());
    const auto by_name = co_await connect_tcp(loop, "example.com:80");
    EXPECT_FALSE(by_name.has_value());
  };
  run_on(loop, body);
}

TEST(Listener, CloseWakesWhoAccepts) {
  Loop loop(1);
  auto listener = std::move(*listen_tcp(loop, "[::1]:0"));
  auto body = [&]() -> Async<void> {
    loop.post([&] { listener->close(); });
    const auto accepted = co_await listener->accept();
    EXPECT_FALSE(accepted.has_value());
    if (!accepted.has_value()) EXPECT_EQ(accepted.error().code(), Code::kCancelled);
  };
  run_on(loop, body);
}

TEST(Listener, OutOfDescriptorsItWaitsAndGoesOn) {
  Loop loop(1);
  auto listener = std::move(*listen_tcp(loop, "127.0.0.1:0"));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  auto body = [&]() -> Async<void> {
    auto client = co_await connect_tcp(loop, listener->address());
    EXPECT_TRUE(client.has_value());
    rlimit none = before;
    none.rlim_cur = 0;
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    // Runs when accept() has failed: it is the next thing that the loop does.
    loop.post([&] { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0); });
    const auto accepted = co_await listener->accept();
    EXPECT_TRUE(accepted.has_value());
  };
  run_on(loop, body);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST(Listener, AnAddressInUseIsAnError) {
  Loop loop(1);
  auto listener = std::move(*listen_tcp(loop, "127.0.0.1:0"));
  const auto second = listen_tcp(loop, listener->address());
  ASSERT_FALSE(second.has_value());
  EXPECT_NE(second.error().message().find(listener->address()), std::string::npos);
}

}  // namespace
}  // namespace caisson::io
