#include "egress/proxy_loop.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "egress/connection.h"
#include "egress/own_address.h"
#include "egress/report.h"
#include "policy/ip_class.h"

namespace caisson::egress {
namespace {

using policy::IpAddress;

constexpr const char* kMalformed = "(a request that is none)";
// Where no descriptor is left for another connection it is looked again so soon.
constexpr std::chrono::milliseconds kAcceptPause{200};

// The addresses that a host names without anybody being asked.
std::vector<IpAddress> known_addresses(const policy::Host& host) {
  if (host.is_address()) return {host.address};
  if (!is_localhost(host)) return {};
  return {IpAddress::v4({127, 0, 0, 1}),
          IpAddress::v6({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1})};
}

class Loop {
 public:
  Loop(const Fd& listener, const Fd& control, const AllowList& allowed, const ProxyLimits& limits,
       Resolver resolver)
      : listener_(listener),
        control_(control),
        allowed_(allowed),
        limits_(limits),
        resolver_(std::move(resolver)) {}

  Report run() {
    while (turn()) {
    }
    return std::move(report_);
  }

 private:
  bool turn();
  void accept_one();
  void serve(std::uint64_t id);
  void decide(std::uint64_t id, Connection& connection);
  void take_addresses(std::uint64_t id, Result<std::vector<IpAddress>> found);
  void deny(Connection& connection, const std::string& reason) {
    const std::string target = connection.target().text();
    add_refusal(report_, target, reason);
    connection.refuse({403, target + " " + reason});
  }
  int timeout_ms() const;

  const Fd& listener_;
  const Fd& control_;
  const AllowList& allowed_;
  const ProxyLimits& limits_;
  std::map<std::uint64_t, Connection> connections_;
  std::uint64_t last_id_ = 0;
  Clock::time_point accept_again_{};
  Report report_;
  Resolver resolver_;  // last: its end tells those who still wait
};

int Loop::timeout_ms() const {
  Clock::time_point next = Clock::now() + std::chrono::minutes(1);
  for (const auto& [id, connection] : connections_) next = std::min(next, connection.deadline());
  if (accept_again_ > Clock::now()) next = std::min(next, accept_again_);
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(next - Clock::now()).count() + 1;
  int timeout = static_cast<int>(std::max<std::int64_t>(left, 0));
  if (const int resolving = resolver_.timeout_ms(); resolving >= 0)
    timeout = std::min(timeout, resolving);
  return timeout;
}

bool Loop::turn() {
  const bool room = connections_.size() < limits_.connections && Clock::now() >= accept_again_;
  std::vector<pollfd> entries = {{control_.get(), POLLIN, 0},
                                 {room ? listener_.get() : -1, POLLIN, 0}};
  std::vector<std::uint64_t> ids;
  for (const auto& [id, connection] : connections_) {
    ids.push_back(id);
    entries.push_back(connection.client_entry());
    entries.push_back(connection.server_entry());
  }
  const std::size_t resolving = entries.size();
  for (const pollfd& entry : resolver_.wanted()) entries.push_back(entry);
  if (::poll(entries.data(), entries.size(), timeout_ms()) < 0 && errno != EINTR) return false;
  if (entries[0].revents != 0) return false;
  std::size_t at = 2;
  for (const std::uint64_t id : ids) {
    Connection& connection = connections_.at(id);
    const short client = entries[at++].revents, server = entries[at++].revents;
    if (client != 0 || server != 0) connection.progress(client, server, report_);
    if (connection.need() != Connection::Need::kEnd && Clock::now() >= connection.deadline())
      connection.time_out();
    serve(id);
  }
  resolver_.progress({entries.begin() + static_cast<std::ptrdiff_t>(resolving), entries.end()});
  if (entries[1].revents != 0) accept_one();
  return true;
}

void Loop::accept_one() {
  Fd client(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (client.valid()) {
    connections_.try_emplace(++last_id_, std::move(client), limits_);
    return;
  }
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
    accept_again_ = Clock::now() + kAcceptPause;
}

void Loop::serve(std::uint64_t id) {
  Connection& connection = connections_.at(id);
  if (const auto malformed = connection.take_malformed())
    add_refusal(report_, kMalformed, malformed->sentence);
  if (connection.need() == Connection::Need::kDecision) decide(id, connection);
  if (connection.need() == Connection::Need::kEnd) connections_.erase(id);
}

void Loop::decide(std::uint64_t id, Connection& connection) {
  connection.wait_for_addresses();
  const Destination& target = connection.target();
  const AllowList::Answer answer = allowed_.allows(target);
  if (answer == AllowList::Answer::kNo)
    return deny(connection, "is not among what this sandbox may reach");
  if (std::vector<IpAddress> known = known_addresses(target.host); !known.empty()) {
    // Such an entry names the address itself.
    ++report_.connections;
    return connection.connect(std::move(known));
  }
  // The connection may be gone when the addresses come.
  resolver_.resolve(target.host.name, [this, id](Result<ResolvedName> found) {
    if (!found) return take_addresses(id, fail(std::move(found).error()));
    take_addresses(id, std::move(found->addresses));
  });
}

void Loop::take_addresses(std::uint64_t id, Result<std::vector<IpAddress>> found) {
  const auto at = connections_.find(id);
  if (at == connections_.end()) return;
  Connection& connection = at->second;
  if (!found) return connection.refuse({502, found.error().message()});
  const auto is_closed = [](const IpAddress& address) {
    return policy::classify(address) != policy::IpClass::kGlobal || is_own_address(address);
  };
  const auto hidden = std::find_if(found->begin(), found->end(), is_closed);
  const std::string example = hidden == found->end() ? "" : hidden->to_string();
  std::erase_if(*found, is_closed);
  if (found->empty() && example.empty())
    return connection.refuse({502, connection.target().host.name + " has no address"});
  if (found->empty())
    return deny(connection, "leads to " + example +
                                ", an address of this host or none of the Internet's; allowed are "
                                "the Internet's but for this host's, and others where they are "
                                "named themselves");
  ++report_.connections;
  connection.connect(std::move(*found));
}

}  // namespace

Report run_proxy(const Fd& listener, const Fd& control, const AllowList& allowed,
                 const ProxyLimits& limits, Resolver resolver) {
  return Loop(listener, control, allowed, limits, std::move(resolver)).run();
}

}  // namespace caisson::egress
