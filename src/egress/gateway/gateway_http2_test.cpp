#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "egress/gateway/gateway.h"
#include "egress/gateway/h2_session.h"
#include "io/loop_for_test.h"
#include "io/race.h"
#include "io/tls.h"

// A gateway on this host's loopback between a client and a server of HTTP/2, both ours: what a new
// policy does to streams. tests/integration/test_gateway_h2.py has the rest.
namespace caisson::egress {
namespace {

using io::Async;
using Side = H2Session::Side;

std::shared_ptr<io::TlsTrust> trust_in(const io::Authority& authority) {
  char path[] = "/tmp/caisson-gateway-test-XXXXXX";
  const Fd file(::mkstemp(path));
  const std::string& text = authority.certificate();
  VERIFY(file.valid() && ::write(file.get(), text.data(), text.size()) == ssize_t(text.size()));
  auto trust = io::TlsTrust::load(path);
  ::unlink(path);
  VERIFY(trust.has_value());
  return *trust;
}

// The server's side: what came, and its sessions.
struct Upstream {
  explicit Upstream(io::Loop& on) : loop(on), came(on) {}

  static Async<void> serve(Upstream& self, io::Listener& listener,
                           std::shared_ptr<io::Authority> authority) {
    for (;;) {
      auto stream = co_await listener.accept();
      if (!stream.has_value()) co_return;
      auto opened = co_await io::accept_tls(self.loop, std::move(*stream), authority, "localhost",
                                            {}, io::Alpn::kHttp2);
      if (!opened.has_value()) continue;
      self.sessions.push_back(std::make_shared<H2Session>(
          self.loop, std::move(*opened), Side::kServer, std::make_shared<H2Budget>()));
      auto take = [&self](std::shared_ptr<H2Stream> request) {
        self.streams.push_back(std::move(request));
        self.came.notify();
      };
      self.loop.spawn(H2Session::run(self.sessions.back(), take, nullptr));
    }
  }
  static Async<bool> wait_for(Upstream& self, std::size_t count) {
    const auto until = io::Clock::now() + std::chrono::seconds(10);
    while (self.streams.size() < count && io::Clock::now() < until)
      co_await self.came.wait_until(until);
    co_return self.streams.size() >= count;
  }

  io::Loop& loop;
  io::Event came;
  std::vector<std::shared_ptr<H2Session>> sessions;
  std::vector<std::shared_ptr<H2Stream>> streams;
};

// Requests to `localhost` on one port, with these paths.
policy::NetworkPolicy allowing(std::uint16_t port, std::vector<std::string> paths) {
  policy::NetworkPolicy values;
  values.rules = {{.hosts = {"localhost", "up.example.com"},
                   .cidrs = {"127.0.0.1"},
                   .ports = {port},
                   .tls = policy::TlsMode::kInspect,
                   .http = {{.paths = std::move(paths)}}}};
  return values;
}

std::shared_ptr<const policy::CompiledNetwork> compiled(const policy::NetworkPolicy& values) {
  auto policy = policy::CompiledNetwork::compile(values);
  EXPECT_TRUE(policy.has_value()) << policy.error().message();
  VERIFY(policy.has_value());
  return std::move(*policy);
}

struct Fixture {
  Fixture() : loop(1), upstream(loop) {
    inside = *io::Authority::make("sandbox");
    outside = *io::Authority::make("outside");
    auto tcp = io::bind_tcp("[::1]:0");
    auto dns_tcp = io::bind_tcp("127.0.0.1:0");
    VERIFY(tcp.has_value() && dns_tcp.has_value());
    Fd udp(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    auto probe = io::adopt_listener(loop, Fd(::dup(tcp->get())));
    VERIFY(probe.has_value());
    address = (*probe)->address();
    port = (*probe)->port();
    auto bound = io::listen_tcp(loop, "127.0.0.1:" + std::to_string(port));
    VERIFY(bound.has_value());
    listener = std::move(*bound);
    GatewayOptions options{.sandbox = "sb1", .policy = compiled({}), .authority = inside};
    options.trust = trust_in(*outside);
    options.record = [this](const AuditRecord& record, const std::string&) {
      if (record.kind == AuditKind::kHttp)
        records.push_back(record.path + " " + std::to_string(record.status) + " " + record.reason +
                          " " + record.detail);
    };
    auto made = Gateway::start(
        loop, {.tcp = std::move(*tcp), .dns_udp = std::move(udp), .dns_tcp = std::move(*dns_tcp)},
        std::move(options));
    VERIFY(made.has_value());
    gateway = std::move(*made);
    loop.spawn(Upstream::serve(upstream, *listener, outside));
  }

  // A client's connection, opened by the gateway. null: it was not.
  static Async<std::shared_ptr<H2Session>> connect(Fixture& self) {
    const std::shared_ptr<io::TlsTrust> trust = trust_in(*self.inside);
    auto wire = co_await io::connect_tcp(self.loop, self.address);
    VERIFY(wire.has_value());
    auto opened =
        co_await io::connect_tls(self.loop, std::move(*wire), "localhost", trust, io::Alpn::kHttp2);
    EXPECT_TRUE(opened.has_value());
    if (!opened.has_value() || (*opened)->protocol() != "h2") co_return nullptr;
    auto session = std::make_shared<H2Session>(self.loop, std::move(*opened), Side::kClient,
                                               std::make_shared<H2Budget>());
    self.loop.spawn(H2Session::run(session, nullptr, nullptr));
    co_return session;
  }
  std::shared_ptr<H2Stream> ask(H2Session& session, const std::string& path) {
    const H2Fields head = {{":method", "GET"},
                           {":scheme", "https"},
                           {":authority", "localhost:" + std::to_string(port)},
                           {":path", path}};
    auto opened = session.open(head, H2End::kEnds, H2Session::Remember::kMay);
    VERIFY(opened.has_value());
    return *opened;
  }

  io::Loop loop;
  Upstream upstream;
  std::shared_ptr<io::Authority> inside, outside;
  std::unique_ptr<io::Listener> listener;
  std::unique_ptr<Gateway> gateway;
  std::string address;
  std::uint16_t port = 0;
  std::vector<std::string> records;
};

TEST(GatewayHttp2, ANewPolicyResetsTheStreamsThatItDeniesAndNoOthers) {
  Fixture at;
  auto body = [&]() -> Async<void> {
    EXPECT_TRUE(at.gateway->update(compiled(allowing(at.port, {"/a", "/b"}))).has_value());
    const auto session = co_await Fixture::connect(at);
    if (session == nullptr) co_return;
    const auto a = at.ask(*session, "/a"), b = at.ask(*session, "/b");
    const bool came = co_await Upstream::wait_for(at.upstream, 2);
    EXPECT_TRUE(came);
    if (!came) co_return;
    // One connection for both.
    EXPECT_EQ(at.upstream.sessions.size(), 1u);
    const bool first_is_a = at.upstream.streams[0]->take_head()[3].second == "/a";
    const auto served_a = at.upstream.streams[first_is_a ? 0 : 1];
    const auto served_b = at.upstream.streams[first_is_a ? 1 : 0];
    EXPECT_TRUE(at.gateway->update(compiled(allowing(at.port, {"/b"}))).has_value());
    const auto broken = co_await a->read_head();
    EXPECT_FALSE(broken.has_value());
    co_await served_a->wait_broken();
    EXPECT_FALSE(served_b->broken_off());
    EXPECT_TRUE(served_b->send_head({{":status", "200"}}, H2End::kFollows).has_value());
    const Status sent = co_await served_b->write("still");
    EXPECT_TRUE(sent.has_value());
    served_b->end({});
    const auto head = co_await b->read_head();
    EXPECT_TRUE(head.has_value());
    const auto piece = co_await b->read_some(100);
    EXPECT_EQ(piece.value_or(""), "still");
    const auto again = at.ask(*session, "/a");
    const auto refused = co_await again->read_head();
    EXPECT_EQ(refused.has_value() ? (*refused)[0].second : "", "403");
    // The connection itself is to be opened no more.
    EXPECT_TRUE(at.gateway->update(compiled({})).has_value());
    co_await at.gateway->wait_ended(io::Clock::now() + std::chrono::seconds(10));
    at.gateway->end();
    co_await at.gateway->wait_ended(io::Clock::now() + std::chrono::seconds(10));
  };
  io::run_on(at.loop, body);
  EXPECT_EQ(at.records, (std::vector<std::string>{"/a 0 match ended by policy_update",
                                                  "/b 200 match ", "/a 403 path "}));
}

TEST(GatewayHttp2, ItsEndEndsEveryStream) {
  Fixture at;
  auto body = [&]() -> Async<void> {
    EXPECT_TRUE(at.gateway->update(compiled(allowing(at.port, {"/**"}))).has_value());
    const auto session = co_await Fixture::connect(at);
    if (session == nullptr) co_return;
    std::vector<std::shared_ptr<H2Stream>> asked;
    for (int n = 0; n < 100; ++n) asked.push_back(at.ask(*session, "/" + std::to_string(n)));
    const bool came = co_await Upstream::wait_for(at.upstream, 100);
    EXPECT_TRUE(came);
    at.gateway->end();
    co_await at.gateway->wait_ended(io::Clock::now() + std::chrono::seconds(10));
    for (const auto& stream : asked) {
      const auto broken = co_await stream->read_head();
      EXPECT_FALSE(broken.has_value());
    }
    for (const auto& stream : at.upstream.streams) co_await stream->wait_broken();
  };
  io::run_on(at.loop, body);
  EXPECT_EQ(at.records.size(), 100u);
}

// A connection that is shared ends just when a request goes there: it was not processed.
TEST(GatewayHttp2, ARequestThatAServerDidNothingForIsSentAgain) {
  Fixture at;
  auto body = [&]() -> Async<void> {
    EXPECT_TRUE(at.gateway->update(compiled(allowing(at.port, {"/**"}))).has_value());
    const auto session = co_await Fixture::connect(at);
    if (session == nullptr) co_return;
    const auto asked = at.ask(*session, "/a");
    bool came = co_await Upstream::wait_for(at.upstream, 1);
    EXPECT_TRUE(came);
    if (!came) co_return;
    at.upstream.streams[0]->reset(H2Code::kRefusedStream);
    came = co_await Upstream::wait_for(at.upstream, 2);
    EXPECT_TRUE(came);
    if (!came) co_return;
    EXPECT_TRUE(at.upstream.streams[1]->send_head({{":status", "204"}}, H2End::kEnds).has_value());
    const auto head = co_await asked->read_head();
    EXPECT_EQ(head.has_value() ? (*head)[0].second : "", "204");
    // Once.
    const auto other = at.ask(*session, "/b");
    came = co_await Upstream::wait_for(at.upstream, 3);
    at.upstream.streams[2]->reset(H2Code::kRefusedStream);
    came = co_await Upstream::wait_for(at.upstream, 4);
    at.upstream.streams[3]->reset(H2Code::kRefusedStream);
    const auto refused = co_await other->read_head();
    EXPECT_EQ(refused.has_value() ? (*refused)[0].second : "", "502");
    at.gateway->end();
    co_await at.gateway->wait_ended(io::Clock::now() + std::chrono::seconds(10));
  };
  io::run_on(at.loop, body);
  EXPECT_EQ(at.records.size(), 2u);
}

}  // namespace
}  // namespace caisson::egress
