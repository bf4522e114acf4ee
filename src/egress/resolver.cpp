#include "egress/resolver.h"

#include <ares.h>
#include <netinet/in.h>
#include <sys/time.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "policy/host_name.h"

namespace caisson::egress {
namespace {

constexpr int kTimeoutMs = 3000;  // of the first try at each server
constexpr int kTries = 3;

template <typename Done>
struct Asked {
  std::string name;
  Done done;
};
using Query = Asked<Resolver::Done>;
using ServicesQuery = Asked<Resolver::ServicesDone>;

std::unexpected<Error> failed(const std::string& name, int status) {
  const bool unknown = status == ARES_ENOTFOUND || status == ARES_ENODATA;
  return fail(Error(unknown ? Code::kNotFound : Code::kUnavailable,
                    "the name " + name + " cannot be resolved (" + ::ares_strerror(status) + ")"));
}

ResolvedName resolved_of(const ares_addrinfo* info) {
  ResolvedName resolved;
  std::vector<policy::IpAddress>& found = resolved.addresses;
  // The least of all: another name on the way may lead elsewhere sooner than its address changes.
  int holds = std::numeric_limits<int>::max();
  for (const ares_addrinfo_cname* name = info->cnames; name != nullptr; name = name->next)
    holds = std::min(holds, name->ttl);
  for (const ares_addrinfo_node* node = info->nodes; node != nullptr; node = node->ai_next) {
    holds = std::min(holds, node->ai_ttl);
    if (node->ai_family == AF_INET) {
      const auto& four = reinterpret_cast<const sockaddr_in*>(node->ai_addr)->sin_addr;
      found.push_back(policy::IpAddress::v4(std::bit_cast<std::array<std::uint8_t, 4>>(four)));
    } else if (node->ai_family == AF_INET6) {
      const auto& six = reinterpret_cast<const sockaddr_in6*>(node->ai_addr)->sin6_addr;
      found.push_back(policy::IpAddress::v6(std::bit_cast<std::array<std::uint8_t, 16>>(six)));
    }
  }
  resolved.holds = std::chrono::seconds(found.empty() ? 0 : std::max(holds, 0));
  return resolved;
}

// The library's callback.
void answer(void* data, int status, int, ares_addrinfo* info) {
  const std::unique_ptr<Query> query(static_cast<Query*>(data));
  if (status != ARES_SUCCESS) return query->done(failed(query->name, status));
  ResolvedName found = resolved_of(info);
  ::ares_freeaddrinfo(info);
  query->done(std::move(found));
}

void answer_services(void* data, int status, int, unsigned char* bytes, int size) {
  const std::unique_ptr<ServicesQuery> query(static_cast<ServicesQuery*>(data));
  ares_srv_reply* records = nullptr;
  if (status == ARES_SUCCESS) status = ::ares_parse_srv_reply(bytes, size, &records);
  if (status != ARES_SUCCESS) return query->done(failed(query->name, status));
  std::vector<DnsService> found;
  for (const ares_srv_reply* record = records; record != nullptr; record = record->next) {
    const auto target = policy::canonical_host(record->host);
    if (!target.has_value() || target->is_address()) continue;
    found.push_back({record->priority, record->weight, record->port, target->name});
  }
  ::ares_free_data(records);
  query->done(std::move(found));
}

}  // namespace

struct Resolver::State {
  ares_channel channel = nullptr;
  ~State() {
    if (channel != nullptr) ::ares_destroy(channel);
  }
};

Resolver::Resolver(std::unique_ptr<State> state) : state_(std::move(state)) {}
Resolver::Resolver(Resolver&&) noexcept = default;
Resolver& Resolver::operator=(Resolver&&) noexcept = default;
Resolver::~Resolver() = default;

Result<Resolver> Resolver::create() {
  auto state = std::make_unique<State>();
  ares_options options{};
  options.timeout = kTimeoutMs;
  options.tries = kTries;
  // The list allows a name, not the same name below a domain of the host's search list.
  options.domains = nullptr;
  options.ndomains = 0;
  const int status = ::ares_init_options(&state->channel, &options,
                                         ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_DOMAINS);
  if (status != ARES_SUCCESS)
    return fail(
        Error::internal(std::string("the resolver cannot begin: ") + ::ares_strerror(status)));
  return Resolver(std::move(state));
}

void Resolver::resolve(const std::string& name, Done done) {
  ares_addrinfo_hints hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  // The callback owns it, and is always called.
  auto* query = new Query{name, std::move(done)};
  ::ares_getaddrinfo(state_->channel, name.c_str(), nullptr, &hints, answer, query);
}

void Resolver::services(const std::string& name, ServicesDone done) {
  constexpr int kIn = 1;
  auto* query = new ServicesQuery{name, std::move(done)};
  ::ares_query(state_->channel, name.c_str(), kIn, static_cast<int>(DnsType::kSrv), answer_services,
               query);
}

std::vector<pollfd> Resolver::wanted() const {
  ares_socket_t sockets[ARES_GETSOCK_MAXNUM];
  const int bits = ::ares_getsock(state_->channel, sockets, ARES_GETSOCK_MAXNUM);
  std::vector<pollfd> entries;
  for (int i = 0; i < ARES_GETSOCK_MAXNUM; ++i) {
    short events = 0;
    if (ARES_GETSOCK_READABLE(bits, i)) events |= POLLIN;
    if (ARES_GETSOCK_WRITABLE(bits, i)) events |= POLLOUT;
    if (events != 0) entries.push_back({sockets[i], events, 0});
  }
  return entries;
}

int Resolver::timeout_ms() const {
  timeval room{};
  const timeval* left = ::ares_timeout(state_->channel, nullptr, &room);
  if (left == nullptr) return -1;
  return static_cast<int>(left->tv_sec * 1000 + (left->tv_usec + 999) / 1000);
}

void Resolver::progress(const std::vector<pollfd>& polled) {
  bool any = false;
  for (const pollfd& entry : polled) {
    if (entry.revents == 0) continue;
    any = true;
    const bool in = (entry.revents & (POLLIN | POLLHUP | POLLERR)) != 0;
    const bool out = (entry.revents & POLLOUT) != 0;
    ::ares_process_fd(state_->channel, in ? entry.fd : ARES_SOCKET_BAD,
                      out ? entry.fd : ARES_SOCKET_BAD);
  }
  // What has timed out.
  if (!any) ::ares_process_fd(state_->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
}

}  // namespace caisson::egress
