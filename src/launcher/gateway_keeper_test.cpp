#include "launcher/gateway_keeper.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

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
  GatewayKeeper keeper{"abcdefgh", Fd()};
  int tcp = -1;

  Scene() {
    wall::Gateway sockets{.tcp = bound(SOCK_STREAM),
                          .dns_udp = bound(SOCK_DGRAM),
                          .dns_tcp = bound(SOCK_STREAM),
                          .namespace_fd = Fd()};
    tcp = sockets.tcp.get();
    keeper.hold(std::move(sockets));
  }
  // One turn of a loop, which does not wait.
  void turn() {
    auto entries = keeper.entries();
    ASSERT_GE(::poll(entries.data(), entries.size(), 1000), 0);
    keeper.look(entries);
  }
};

TEST(GatewayKeeper, HasNothingToPollForWithoutSockets) {
  const GatewayKeeper keeper("abcdefgh", Fd());
  for (const pollfd& entry : keeper.entries()) EXPECT_EQ(entry.fd, -1);
}

TEST(GatewayKeeper, APolicyNeedsAGateway) {
  GatewayKeeper keeper("abcdefgh", Fd());
  const Status set = keeper.set_policy("{}");
  ASSERT_FALSE(set.has_value());
  EXPECT_EQ(set.error().code(), Code::kFailedPrecondition);
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
