// What the connections of one gateway share. Only .cpp files of src/egress/gateway include this.
//
// Owned by the Gateway and by every connection's coroutine. Belongs to the loop.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egress/dns_answer.h"
#include "egress/gateway/dial.h"
#include "egress/gateway/gateway.h"
#include "egress/gateway/h2_session.h"
#include "egress/gateway/kept_upstreams.h"
#include "egress/gateway/meter.h"
#include "egress/gateway/pass.h"
#include "egress/gateway/services.h"
#include "egress/name_table.h"
#include "egress/rate.h"
#include "http/server.h"
#include "io/datagram.h"
#include "io/stream.h"
#include "io/tls.h"

namespace caisson::egress {

// Where a connection was meant to go, as far as its address says.
struct Meant {
  std::string text;  // "198.18.0.9:443"
  std::uint16_t port = 0;
  policy::Host host;  // the name behind a synthetic address, or the address
  std::optional<NameTable::Pin> pin;
};

// What records say of TLS that was opened, and of TLS that was not.
inline constexpr std::string_view kInspected = "inspect";
inline constexpr std::string_view kSpliced = "splice";

// A TLS connection that is to be opened: whose server we are to the client, as its hello has it.
struct Inspected {
  policy::Host host;
  std::vector<std::string> protocols;  // of ALPN; empty: it names none
  policy::NetworkDecision decision;
};

struct Gateway::State final : DnsNames, std::enable_shared_from_this<Gateway::State> {
  State(io::Loop& on, GatewayOptions given);

  // ---- gateway.cpp
  static io::Async<void> accept_all(std::shared_ptr<State> self);
  void record(const AuditRecord& record);
  void count_unwritten();
  // Takes nothing more, resets every connection and ends whoever waits.
  void end();
  // Until end().
  static io::Async<void> wait_end(State& state);

  // As the policy has them now.
  void compile_secrets();
  // Null: the policy's proxy has none, or nobody keeps it any more.
  SharedSecret proxy_password() const;
  // Before a request may get one: values whose time is over are none.
  void drop_expired_secrets();

  // ---- dns.cpp
  NameVerdict verdict(const std::string& name) const override;
  static io::Async<void> answer_datagrams(std::shared_ptr<State> self);
  static io::Async<void> accept_queries(std::shared_ptr<State> self);
  static io::Async<void> answer_stream(std::shared_ptr<State> self,
                                       std::unique_ptr<io::Stream> stream);
  DnsReply reply(std::string_view query, DnsTransport transport);
  // What a reply that waits is waiting for.
  static io::Async<std::string> answer_services(std::shared_ptr<State> self, DnsReply reply,
                                                DnsTransport transport);
  static io::Async<void> answer_later(std::shared_ptr<State> self, DnsReply reply,
                                      std::shared_ptr<const io::SocketAddress> from);

  // ---- connection.cpp
  static io::Async<void> serve(std::shared_ptr<State> self, std::unique_ptr<io::Stream> stream);

  // Returns when nothing has moved on a connection for as long as the policy allows, which ends it,
  // or when the gateway ends.
  static io::Async<void> watch(State& state, Carrier& client);
  // `tls`: it speaks TLS, by the host's name. nullopt: the gateway ended meanwhile.
  static io::Async<std::optional<DialResult>> dial_for(State& state, policy::Host host,
                                                       std::uint16_t port, bool tls,
                                                       policy::NetworkDecision allowed);
  // Whether a connection to that endpoint, which `decision` lets through, may stand.
  bool may_stand(const policy::CompiledNetwork& policy, const policy::Host& host,
                 std::uint16_t port, std::string_view upstream,
                 const policy::NetworkDecision& decision) const;

  // ---- inspect.cpp
  static io::Async<void> inspect(std::shared_ptr<State> self, std::unique_ptr<MeteredStream> client,
                                 Meant destination, Inspected what);
  // A connection to a server as TLS with the one that is called so, which was verified.
  static io::Async<Result<std::unique_ptr<io::Stream>>> secure_for(
      State& state, std::unique_ptr<io::Stream> upstream, const policy::Host& host,
      std::uint16_t port, io::Alpn alpn);

  // ---- http.cpp
  // Takes the connection over until its end.
  static void serve_http(std::shared_ptr<State> self, std::unique_ptr<MeteredStream> client,
                         Meant destination);
  // The same of what is inside TLS; `wire` is the connection below `client`. Requests are for
  // `host` alone.
  static void serve_https(std::shared_ptr<State> self, std::unique_ptr<io::Stream> client,
                          MeteredStream& wire, Meant destination, policy::Host host);
  // Whether TLS to that name is still to be opened.
  static std::function<bool(const policy::CompiledNetwork&)> is_to_be_opened(
      const Meant& destination, const policy::Host& served);

  // ---- http2.cpp
  // As serve_https(), where HTTP/2 was agreed on. Until its end.
  static io::Async<void> serve_http2(std::shared_ptr<State> self,
                                     std::unique_ptr<io::Stream> client, MeteredStream& wire,
                                     Meant destination, policy::Host host);

  io::Loop& loop;
  GatewayOptions options;
  std::shared_ptr<const SecretRules> secrets;  // null: there are none
  std::uint64_t revision = 1;
  std::unique_ptr<NameTable> names;
  Meter meter;
  PassRoom room;
  KnownAddresses known;
  KeptUpstreams kept;
  // Of true servers by `options.trust`, since the policy was last changed.
  const std::shared_ptr<io::TlsSessions> sessions = std::make_shared<io::TlsSessions>();
  http::Server http;
  Services services;
  std::unique_ptr<io::Listener> tcp, dns_tcp;
  std::unique_ptr<io::DatagramSocket> dns_udp;
  unsigned dns_streams = 0;
  bool ended = false;
  io::Event ending;
  // Connections that are judged or open, and requests.
  unsigned active = 0;
  unsigned streams = 0;  // requests of HTTP/2
  const std::shared_ptr<H2Budget> h2_budget = std::make_shared<H2Budget>();
  io::Event one_ended;
  // Records beyond this rate are counted alone, so that a program cannot fill a disk with them.
  TokenBucket record_rate;
  std::uint64_t unwritten = 0;

  // Open connections and requests, and whether a new policy still allows each.
  struct Open {
    Carrier* stream = nullptr;
    std::function<bool(const policy::CompiledNetwork&)> still_allowed;
  };
  std::list<Open> open;
};

// Counted in `active` for as long as it lives.
class Active {
 public:
  explicit Active(Gateway::State& state) : state_(state) { ++state_.active; }
  ~Active() {
    --state_.active;
    state_.one_ended.notify();
  }
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;

 private:
  Gateway::State& state_;
};

// In `open` for as long as it lives.
class OpenConnection {
 public:
  OpenConnection(std::shared_ptr<Gateway::State> state, Carrier& stream,
                 std::function<bool(const policy::CompiledNetwork&)> still_allowed);
  ~OpenConnection();
  OpenConnection(const OpenConnection&) = delete;
  OpenConnection& operator=(const OpenConnection&) = delete;

 private:
  std::shared_ptr<Gateway::State> state_;
  std::list<Gateway::State::Open>::iterator place_;
};

}  // namespace caisson::egress
