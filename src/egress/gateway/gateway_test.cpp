#include "egress/gateway/gateway.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <vector>

#include "base/json.h"
#include "io/loop_for_test.h"
#include "io/stream.h"

// A gateway on this host's loopback, where nothing redirects: what a connection was meant for is
// the gateway's own address. tests/integration/test_gateway.py has the rest.
namespace caisson::egress {
namespace {

using io::Async;

struct Made {
  std::unique_ptr<Gateway> gateway;
  std::string address;
  std::vector<std::string> reasons;  // of its records
};

std::unique_ptr<Made> make_gateway(io::Loop& loop) {
  auto made = std::make_unique<Made>();
  auto tcp = io::bind_tcp("127.0.0.1:0");
  auto dns_tcp = io::bind_tcp("127.0.0.1:0");
  VERIFY(tcp.has_value() && dns_tcp.has_value());
  Fd udp(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto policy = policy::CompiledNetwork::compile({});
  VERIFY(policy.has_value());
  GatewayOptions options{.sandbox = "sb1", .policy = *policy};
  options.record = [&made = *made](const AuditRecord& record, const std::string&) {
    made.reasons.push_back(record.reason);
  };
  // The address before it is handed over.
  auto probe = io::adopt_listener(loop, Fd(::dup(tcp->get())));
  VERIFY(probe.has_value());
  made->address = (*probe)->address();
  auto gateway = Gateway::start(
      loop, {.tcp = std::move(*tcp), .dns_udp = std::move(udp), .dns_tcp = std::move(*dns_tcp)},
      std::move(options));
  VERIFY(gateway.has_value());
  made->gateway = std::move(*gateway);
  return made;
}

// One request that is refused, on a connection that stays.
Async<std::string> ask(io::Stream& stream, std::string host) {
  const std::string request = "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n";
  const Status sent = co_await stream.write(request);
  if (!sent.has_value()) co_return "(the end)";
  std::string answer;
  while (!answer.ends_with("}\n")) {
    std::array<char, 4096> piece;
    const auto count = co_await stream.read(piece);
    if (count.value_or(0) == 0) co_return "(the end)";
    answer.append(piece.data(), *count);
  }
  co_return answer.substr(0, answer.find('\r'));
}

TEST(Gateway, ItsEndEndsConnectionsThatAreOpen) {
  io::Loop loop(1);
  std::unique_ptr<Made> made = make_gateway(loop);
  auto body = [&]() -> Async<void> {
    auto stream = co_await io::connect_tcp(loop, made->address);
    EXPECT_TRUE(stream.has_value());
    const std::string answer = co_await ask(**stream, made->address);
    EXPECT_EQ(answer, "HTTP/1.1 403 Forbidden");
    made->gateway.reset();
    const std::string again = co_await ask(**stream, made->address);
    EXPECT_EQ(again, "(the end)");
    auto another = co_await io::connect_tcp(loop, made->address);
    EXPECT_FALSE(another.has_value());
  };
  io::run_on(loop, body);
  EXPECT_EQ(made->reasons, std::vector<std::string>{"no_rule"});
}

TEST(Gateway, AConnectionMayOutliveItAndItsLoop) {
  std::unique_ptr<Made> made;
  {
    io::Loop loop(1);
    made = make_gateway(loop);
    auto body = [&]() -> Async<void> {
      auto stream = co_await io::connect_tcp(loop, made->address);
      EXPECT_TRUE(stream.has_value());
      const std::string answer = co_await ask(**stream, made->address);
      EXPECT_EQ(answer, "HTTP/1.1 403 Forbidden");
      made->gateway.reset();
      // The loop ends before what the end wakes has run.
    };
    io::run_on(loop, body);
  }
  EXPECT_EQ(made->reasons.size(), 1u);
}

TEST(Gateway, ItWaitsForNobodyWhenNothingIsOpen) {
  io::Loop loop(1);
  std::unique_ptr<Made> made = make_gateway(loop);
  auto body = [&]() -> Async<void> {
    made->gateway->end();
    co_await made->gateway->wait_ended(io::Clock::now() + std::chrono::hours(1));
    EXPECT_EQ(made->gateway->counts().denied, 0u);
  };
  io::run_on(loop, body);
}

}  // namespace
}  // namespace caisson::egress
