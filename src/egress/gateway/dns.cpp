// The part of the gateway that answers names.
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <optional>
#include <utility>

#include "base/fd.h"
#include "base/guards.h"
#include "egress/gateway/state.h"
#include "io/address.h"
#include "io/race.h"

namespace caisson::egress {
namespace {

using io::Async;

constexpr unsigned kMostDnsStreams = 16;
constexpr unsigned kMostStreamQueries = 10;
constexpr std::chrono::seconds kDnsIdle{2};

#if defined(CAISSON_TEST_SWITCHES)
// What a gateway does that forwards: the query goes to this host's resolver.
void forward_query(std::string_view query) {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in resolver{};
  resolver.sin_family = AF_INET;
  resolver.sin_port = htons(53);
  resolver.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  (void)::sendto(socket.get(), query.data(), query.size(), MSG_NOSIGNAL,
                 reinterpret_cast<const sockaddr*>(&resolver), sizeof resolver);
}
#endif

Async<void> find_into(Services& services, std::string name, std::chrono::seconds ttl,
                      std::optional<Services::Found>& found) {
  found = co_await services.find(std::move(name), ttl);
}

}  // namespace

NameVerdict Gateway::State::verdict(const std::string& name) const {
  policy::Host host;
  host.name = name;
  return options.policy->may_match(host) ? NameVerdict::kMatched : NameVerdict::kUnmatched;
}

DnsReply Gateway::State::reply(std::string_view query, DnsTransport transport) {
#if defined(CAISSON_TEST_SWITCHES)
  if (guard_off(Guard::kDnsClosed)) forward_query(query);
#endif
  DnsReply reply = reply_to_dns(query, transport, options.policy->values().dns, *this, *names);
  // What is answered with an address is judged, and recorded, when it is connected to.
  if (reply.outcome == DnsOutcome::kRefused || reply.outcome == DnsOutcome::kNotAName ||
      reply.outcome == DnsOutcome::kTableFull) {
    record({.kind = AuditKind::kDns,
            .reason = std::string(to_string(reply.outcome)),
            .host = reply.name});
  }
  return reply;
}

Async<std::string> Gateway::State::answer_services(std::shared_ptr<State> self, DnsReply reply,
                                                   DnsTransport transport) {
  const std::chrono::seconds ttl(self->options.policy->values().dns.ttl);
  std::optional<Services::Found> found;
  co_await io::race(find_into(self->services, reply.name, ttl, found), wait_end(*self));
  if (!found) co_return "";
  if (found->asked) {
    self->record({.kind = AuditKind::kDns,
                  .allowed = true,
                  .reason = std::string(to_string(DnsOutcome::kServices)),
                  .host = reply.name,
                  .detail = found->services ? "" : "nobody answered"});
  }
  co_return services_answer(*reply.waiting, transport, found->services,
                            self->options.policy->values().dns, *self);
}

Async<void> Gateway::State::answer_later(std::shared_ptr<State> self, DnsReply reply,
                                         std::shared_ptr<const io::SocketAddress> from) {
  const std::string answer = co_await answer_services(self, std::move(reply), DnsTransport::kUdp);
  if (!self->ended) self->dns_udp->send(answer, *from);
}

Async<void> Gateway::State::answer_datagrams(std::shared_ptr<State> self) {
  for (;;) {
    auto query = co_await self->dns_udp->receive(kMostDnsQuery);
    if (!query.has_value()) co_return;
    // Dropped, as a resolver that is too busy drops it: the client asks again.
    if (!self->meter.take_query()) continue;
    DnsReply reply = self->reply(query->bytes, DnsTransport::kUdp);
    if (reply.waiting) {
      self->loop.spawn(answer_later(self, std::move(reply), query->from));
    } else if (!reply.answer.empty()) {
      self->dns_udp->send(reply.answer, *query->from);
    }
  }
}

Async<void> Gateway::State::accept_queries(std::shared_ptr<State> self) {
  for (;;) {
    auto stream = co_await self->dns_tcp->accept();
    if (!stream.has_value()) co_return;
    if (self->dns_streams < kMostDnsStreams)
      self->loop.spawn(answer_stream(self, std::move(*stream)));
  }
}

Async<void> Gateway::State::answer_stream(std::shared_ptr<State> self,
                                          std::unique_ptr<io::Stream> stream) {
  struct Counted {
    explicit Counted(unsigned& counter) : count(counter) { ++count; }
    ~Counted() { --count; }
    unsigned& count;
  };
  const Counted counted(self->dns_streams);
  stream->set_timeout(kDnsIdle);
  std::string bytes;
  std::array<char, 1024> piece;
  for (unsigned answered = 0; answered < kMostStreamQueries;) {
    const DnsFrame frame = next_dns_frame(bytes);
    if (frame.state == DnsFrame::State::kRefused) co_return;
    if (frame.state == DnsFrame::State::kNeedMore) {
      const auto count = co_await stream->read(piece);
      if (count.value_or(0) == 0) co_return;
      bytes.append(piece.data(), *count);
      continue;
    }
    if (!self->meter.take_query()) co_return;
    DnsReply reply = self->reply(frame.message, DnsTransport::kTcp);
    bytes.erase(0, frame.used);
    ++answered;
    std::string answer = reply.answer;
    if (reply.waiting)
      answer = co_await answer_services(self, std::move(reply), DnsTransport::kTcp);
    if (answer.empty()) co_return;
    const std::string framed = dns_frame(answer);
    const Status written = co_await stream->write(framed);
    if (!written.has_value()) co_return;
  }
}

}  // namespace caisson::egress
