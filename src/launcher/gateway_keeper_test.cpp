#include "launcher/gateway_keeper.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/gateway_protocol.h"

namespace caisson::launcher {
namespace {

Fd bound(int type) {
  Fd socket(::socket(AF_INET6, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  if (type == SOCK_STREAM) EXPECT_EQ(::listen(socket.get(), 8), 0);
  return socket;
}

Fd connected_to(const Fd& listener) {
  sockaddr_in6 address{};
  socklen_t size = sizeof address;
  EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  Fd client(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  return client;
}

struct Scene {
  GatewayKeeper keeper{"abcdefgh", {}, GatewayKeeper::Floor::kFixed};
  int tcp = -1;

  Scene() {
    wall::Gateway sockets{.tcp = bound(SOCK_STREAM),
                          .dns_udp = bound(SOCK_DGRAM),
                          .dns_tcp = bound(SOCK_STREAM),
                          .namespace_fd = Fd()};
    tcp = sockets.tcp.get();
    EXPECT_TRUE(keeper.hold(std::move(sockets)).has_value());
  }
  // One turn of a loop, which does not wait.
  void turn() {
    auto entries = keeper.entries();
    ASSERT_GE(::poll(entries.data(), entries.size(), 1000), 0);
    keeper.look(entries);
  }
};

TEST(GatewayKeeper, HasNothingToPollForWithoutSockets) {
  const GatewayKeeper keeper("abcdefgh", {}, GatewayKeeper::Floor::kFixed);
  for (const pollfd& entry : keeper.entries()) EXPECT_EQ(entry.fd, -1);
}

TEST(GatewayKeeper, APolicyNeedsAGateway) {
  GatewayKeeper keeper("abcdefgh", {}, GatewayKeeper::Floor::kFixed);
  const Status set = keeper.set_policy("{}");
  ASSERT_FALSE(set.has_value());
  EXPECT_EQ(set.error().code(), Code::kFailedPrecondition);
}

wall::Gateway sockets_of(int tcp, int dns_udp, int dns_tcp) {
  return {
      .tcp = bound(tcp), .dns_udp = bound(dns_udp), .dns_tcp = bound(dns_tcp), .namespace_fd = {}};
}

TEST(GatewayKeeper, TakesOneGatewayAndNothingElse) {
  GatewayKeeper keeper("abcdefgh", {}, GatewayKeeper::Floor::kFixed);
  EXPECT_FALSE(keeper.hold(sockets_of(SOCK_DGRAM, SOCK_DGRAM, SOCK_STREAM)).has_value());
  EXPECT_FALSE(keeper.hold(sockets_of(SOCK_STREAM, SOCK_STREAM, SOCK_STREAM)).has_value());
  wall::Gateway pipes = sockets_of(SOCK_STREAM, SOCK_DGRAM, SOCK_STREAM);
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd held(ends[1]);
  pipes.tcp = Fd(ends[0]);
  EXPECT_FALSE(keeper.hold(std::move(pipes)).has_value());
  wall::Gateway good = sockets_of(SOCK_STREAM, SOCK_DGRAM, SOCK_STREAM);
  const int listener = good.tcp.get();
  ASSERT_EQ(::fcntl(listener, F_SETFL, 0), 0);
  EXPECT_TRUE(keeper.hold(std::move(good)).has_value());
  EXPECT_NE(::fcntl(listener, F_GETFL) & O_NONBLOCK, 0) << "nobody waits for it";
  EXPECT_FALSE(keeper.hold(sockets_of(SOCK_STREAM, SOCK_DGRAM, SOCK_STREAM)).has_value());
}

TEST(GatewayKeeper, APolicyIsBounded) {
  Scene scene;
  EXPECT_TRUE(scene.keeper.set_policy(std::string(kMostLivePolicy, 'x')).has_value());
  const Status set = scene.keeper.set_policy(std::string(kMostLivePolicy + 1, 'x'));
  ASSERT_FALSE(set.has_value());
  EXPECT_EQ(set.error().code(), Code::kResourceExhausted);
}

TEST(GatewayKeeper, WhatComesBeforeThereIsAPolicyIsReset) {
  Scene scene;
  const Fd client = connected_to(Fd(::dup(scene.tcp)));
  scene.turn();
  char byte = 0;
  EXPECT_EQ(::recv(client.get(), &byte, 1, 0), -1);
  EXPECT_EQ(errno, ECONNRESET);
}

}  // namespace
}  // namespace caisson::launcher
