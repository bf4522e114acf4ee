#include "egress/gateway/gateway.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "io/loop_for_test.h"
#include "io/race.h"
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
  std::string details;
};

std::shared_ptr<const policy::CompiledNetwork> compiled(const policy::NetworkPolicy& values) {
  auto policy = policy::CompiledNetwork::compile(values);
  VERIFY(policy.has_value());
  return std::move(*policy);
}

std::unique_ptr<Made> make_gateway(io::Loop& loop, const char* at = "127.0.0.1:0",
                                   std::shared_ptr<io::Authority> authority = nullptr) {
  auto made = std::make_unique<Made>();
  auto tcp = io::bind_tcp(at);
  auto dns_tcp = io::bind_tcp("127.0.0.1:0");
  VERIFY(tcp.has_value() && dns_tcp.has_value());
  Fd udp(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  GatewayOptions options{
      .sandbox = "sb1", .policy = compiled({}), .authority = std::move(authority)};
  options.record = [&made = *made](const AuditRecord& record, const std::string&) {
    made.reasons.push_back(record.reason);
    made.details += record.detail;
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

// A policy of requests to `localhost`, which leads to the upstream on the gateway's port at
// 127.0.0.1; the gateway itself is at ::1.
policy::NetworkPolicy to_upstream(std::uint16_t port) {
  policy::NetworkPolicy values;
  values.rules = {{.hosts = {"localhost", "up.example.com"},
                   .cidrs = {"127.0.0.1"},
                   .ports = {port},
                   .tls = policy::TlsMode::kPlaintext}};
  return values;
}

TEST(Gateway, ANewPolicyResetsWhatItDeniesAndNothingElse) {
  io::Loop loop(1);
  std::unique_ptr<Made> made = make_gateway(loop, "[::1]:0");
  const std::string port = made->address.substr(made->address.rfind(':') + 1);
  auto upstream = io::listen_tcp(loop, "127.0.0.1:" + port);
  ASSERT_TRUE(upstream.has_value()) << upstream.error().message();
  const auto number = (*upstream)->port();
  auto body = [&]() -> Async<void> {
    made->gateway->update(compiled(to_upstream(number)));
    auto client = co_await io::connect_tcp(loop, made->address);
    co_await io::send(**client, "GET /a HTTP/1.1\r\nHost: localhost:" + port + "\r\n\r\n");
    std::optional<Result<std::unique_ptr<io::Stream>>> accepted;
    auto accept = [&]() -> Async<void> { accepted = co_await (*upstream)->accept(); };
    co_await io::race(accept(), io::Loop::sleep(std::chrono::seconds(10)));
    const bool came_through = accepted.has_value() && accepted->has_value();
    EXPECT_TRUE(came_through) << made->details;
    if (!came_through) co_return;
    const std::unique_ptr<io::Stream> server = std::move(**accepted);
    co_await io::send(*server, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfirst");
    std::string came;
    std::array<char, 4096> piece;
    while (!came.ends_with("first")) {
      const auto count = co_await (*client)->read(piece);
      if (count.value_or(0) == 0) break;
      came.append(piece.data(), *count);
    }
    EXPECT_TRUE(came.starts_with("HTTP/1.1 200 OK")) << came;
    // It may stay: another policy that allows it.
    policy::NetworkPolicy other = to_upstream(number);
    other.rules.push_back({.action = policy::RuleAction::kDeny, .hosts = {"other.example.com"}});
    made->gateway->update(compiled(other));
    co_await io::send(*server, "more");
    const auto more = co_await (*client)->read(piece);
    EXPECT_EQ(std::string_view(piece.data(), more.value_or(0)), "more");
    // It may not: the name is allowed, and the address that it led to is denied now.
    other.rules.push_back({.action = policy::RuleAction::kDeny, .cidrs = {"127.0.0.1/32"}});
    made->gateway->update(compiled(other));
    const auto end = co_await (*client)->read(piece);
    EXPECT_EQ(end.value_or(0), 0u);
    made->gateway->end();
    co_await made->gateway->wait_ended(io::Clock::now() + std::chrono::seconds(10));
  };
  io::run_on(loop, body);
  EXPECT_EQ(made->reasons, (std::vector<std::string>{"update", "update", "update", "match"}));
}

// A policy that opens the TLS of a name, on the gateway's own port.
policy::NetworkPolicy to_inspect(const Made& made, policy::TlsMode mode) {
  const std::size_t colon = made.address.rfind(':');
  const auto port = policy::parse_port(std::string_view(made.address).substr(colon + 1));
  policy::NetworkPolicy values;
  values.rules = {{.hosts = {"up.example.com"}, .ports = {*port}, .tls = mode}};
  return values;
}

// Trusts that authority alone.
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

TEST(Gateway, APolicyThatOpensTlsIsRefusedWithoutAnAuthority) {
  io::Loop loop(1);
  std::unique_ptr<Made> made = make_gateway(loop);
  const Status set = made->gateway->update(compiled(to_inspect(*made, policy::TlsMode::kInspect)));
  EXPECT_FALSE(set.has_value());
  EXPECT_TRUE(set.error().message().contains("inspects no TLS")) << set.error().message();
  EXPECT_EQ(made->gateway->revision(), 1u);
}

SecretEntry entry_of(const policy::SecretRule& rule, std::string_view value, char placeholder) {
  return {.rule = rule,
          .placeholder = std::string(32, placeholder),
          .value = std::make_shared<const SecretValue>(value)};
}

TEST(Gateway, SecretsChangePlaces) {
  io::Loop loop(1);
  std::unique_ptr<Made> made = make_gateway(loop, "127.0.0.1:0", *io::Authority::make("sb1"));
  policy::NetworkPolicy values = to_inspect(*made, policy::TlsMode::kInspect);
  policy::SecretRule rule;
  rule.name = "one";
  rule.env = "TOKEN";
  rule.source = {.kind = policy::SecretSource::Kind::kVault, .text = "gh"};
  rule.hosts = {"up.example.com"};
  Gateway& gateway = *made->gateway;
  const auto set = [&](const policy::SecretRule& now, std::string_view value, char placeholder) {
    values.secrets = {now};
    return gateway.update(compiled(values), {entry_of(now, value, placeholder)});
  };
  EXPECT_TRUE(set(rule, "the value 1", 'a').has_value());
  // Another name, and the same variable.
  rule.name = "two";
  EXPECT_TRUE(set(rule, "the value 2", 'b').has_value());
  // A header that answers may have, and then one that they may not, by one name.
  policy::SecretRule open = rule;
  open.name = "rules-0";
  open.env.clear();
  open.inject = policy::SecretInjection{.header = "X-A", .prefix = "", .scrub = false};
  EXPECT_TRUE(set(open, "v", 'c').has_value());
  open.inject->scrub = true;
  const Status scrubbed = set(open, "the value 3", 'd');
  EXPECT_TRUE(scrubbed.has_value()) << scrubbed.error().message();
}

TEST(Gateway, ASecretMayOnlyDoWhatWasSaidWithItsValue) {
  io::Loop loop(1);
  std::unique_ptr<Made> made = make_gateway(loop, "127.0.0.1:0", *io::Authority::make("sb1"));
  policy::NetworkPolicy values = to_inspect(*made, policy::TlsMode::kInspect);
  policy::SecretRule rule;
  rule.name = "gh";
  rule.source = {.kind = policy::SecretSource::Kind::kVault, .text = "gh"};
  rule.hosts = {"up.example.com"};
  values.secrets = {rule};
  EXPECT_FALSE(made->gateway->update(compiled(values)).has_value()) << "it has no value";
  Gateway& gateway = *made->gateway;
  EXPECT_FALSE(gateway.update(compiled(values), {entry_of(rule, "short", 'a')}).has_value());
  EXPECT_TRUE(gateway.update(compiled(values), {entry_of(rule, "the value 1", 'a')}).has_value());
  EXPECT_TRUE(gateway.update(compiled(values)).has_value());
  values.secrets[0].hosts.push_back("*.example.com");
  const Status wider = gateway.update(compiled(values));
  EXPECT_FALSE(wider.has_value());
  EXPECT_TRUE(wider.error().message().contains("another rule for it")) << wider.error().message();
  // The rule comes with the value, or it does not hold.
  EXPECT_FALSE(gateway.update(compiled(values), {entry_of(rule, "the value 2", 'a')}).has_value());
  const policy::SecretRule widened = values.secrets[0];
  EXPECT_TRUE(
      gateway.update(compiled(values), {entry_of(widened, "the value 2", 'a')}).has_value());
  EXPECT_EQ(gateway.revision(), 4u);
}

TEST(Gateway, WhatWasOpenedEndsWithThePolicyThatOpenedIt) {
  io::Loop loop(1);
  const std::shared_ptr<io::Authority> authority = *io::Authority::make("sb1");
  const std::shared_ptr<io::TlsTrust> trust = trust_in(*authority);
  std::unique_ptr<Made> made = make_gateway(loop, "127.0.0.1:0", authority);
  auto body = [&]() -> Async<void> {
    made->gateway->update(compiled(to_inspect(*made, policy::TlsMode::kInspect)));
    auto wire = co_await io::connect_tcp(loop, made->address);
    auto opened = co_await io::connect_tls(loop, std::move(*wire), "up.example.com", trust);
    EXPECT_TRUE(opened.has_value());
    if (!opened.has_value()) co_return;
    const std::string answer = co_await ask(**opened, made->address);
    EXPECT_EQ(answer, "HTTP/1.1 421 ");
    // The same again changes nothing.
    made->gateway->update(compiled(to_inspect(*made, policy::TlsMode::kInspect)));
    const std::string again = co_await ask(**opened, made->address);
    EXPECT_EQ(again, "HTTP/1.1 421 ");
    made->gateway->update(compiled(to_inspect(*made, policy::TlsMode::kSplice)));
    const std::string end = co_await ask(**opened, made->address);
    EXPECT_EQ(end, "(the end)");
  };
  io::run_on(loop, body);
  EXPECT_EQ(made->reasons, (std::vector<std::string>{"update", "host_mismatch", "update",
                                                     "host_mismatch", "update"}));
}

TEST(Gateway, ItWaitsForNobodyWhenNothingIsOpen) {
  io::Loop loop(1);
  std::unique_ptr<Made> made = make_gateway(loop);
  auto body = [&]() -> Async<void> {
    made->gateway->end();
    co_await made->gateway->wait_ended(io::Clock::now() + std::chrono::hours(1));
    EXPECT_TRUE(made->reasons.empty());
  };
  io::run_on(loop, body);
}

}  // namespace
}  // namespace caisson::egress
