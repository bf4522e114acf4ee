// caisson-gateway: decides what leaves one sandbox; see gateway.h and
// launcher/gateway_protocol.h.
//
//   caisson-gateway PARENT [fixed-floor]     its socket is descriptor 3; PARENT is who started it
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/secret.h"
#include "base/sys.h"
#include "egress/audit_file.h"
#include "egress/confine.h"
#include "egress/gateway/audit_writer.h"
#include "egress/gateway/gateway.h"
#include "egress/gateway/keys.h"
#include "egress/minted.h"
#include "egress/report.h"
#include "egress/secrets/placeholder.h"
#include "egress/secrets/sealed.h"
#include "io/stream.h"
#include "launcher/gateway_protocol.h"
#include "policy/network_document.h"
#include "policy/upstream_proxy.h"

namespace {

using namespace caisson;          // NOLINT: a program of one file
using namespace caisson::egress;  // NOLINT
using namespace launcher;         // NOLINT

constexpr int kStatusOfOurError = 125;
// For names that are looked up: each waits for one answer.
constexpr unsigned kThreads = 8;
constexpr int kMinterPatienceMs = 5000;
constexpr std::size_t kMostMemory = 512u << 20;
constexpr std::size_t kMostDescriptors = 65'536;
constexpr std::size_t kMostPolicy = 16u << 20;
constexpr std::size_t kMostServed = 64u << 10;
constexpr std::size_t kMostChain = 256;
constexpr std::chrono::seconds kLastRecords{1};
// Of one run. What comes then is counted.
constexpr std::uint64_t kMostAudit = 1u << 30;

struct Started {
  std::string sandbox;
  bool fixed_floor = false;
  std::shared_ptr<const policy::CompiledNetwork> policy;
  GatewaySockets sockets;
  // Where the records go; the key of their chain is read when nobody can look at our memory.
  Fd audit, audit_reader, chain_file;
  AuditChainKey chain;
  std::optional<AuditHead> known;  // where heads are wanted
  Fd alarm, values;
  std::shared_ptr<io::Authority> authority;
  std::shared_ptr<io::TlsTrust> trust;
  std::vector<SecretEntry> secrets;
  // Of a sandbox that outlives its maker and inspects TLS; empty otherwise.
  SecretValue sealing;
  Fd keys;  // read when nobody can look at our memory
  Fd certificate_to;
  ServedDomain served;
  std::shared_ptr<io::TlsTrust> served_trust;
};

void say(char kind, std::string_view text, std::span<const int> descriptors = {}) {
  (void)sys::send_message(kGatewayControlFd, kind + std::string(text), descriptors);
}

// `fixed`: whoever started us holds the floor fixed, whatever is said here.
Result<std::shared_ptr<const policy::CompiledNetwork>> compiled(std::string_view json, bool fixed) {
  TRY_ASSIGN(policy::NetworkPolicy values, policy::parse_written_network_policy(json));
  if (fixed) values.floor = policy::Floor::kFixed;
  return policy::CompiledNetwork::compile(values);
}

bool is_keyed(const Started& started) {
  return !started.sealing.bytes().empty();
}

bool will_inspect(const Started& started) {
  return is_keyed(started) || policy::inspects(started.policy->values());
}

// Before it is shut in, where it can still read whom this host trusts.
Status prepare_to_inspect(Started& started) {
  if (!will_inspect(started)) return {};
  if (!is_keyed(started)) {
    TRY_ASSIGN(started.authority, io::Authority::make("Caisson sandbox " + started.sandbox));
    // Whoever makes the sandbox waits for this alone.
    TRY(sys::send_message(started.certificate_to.get(), started.authority->certificate(), {}));
    started.certificate_to.reset();
  }
  TRY(started.authority->get_ready());
  TRY_ASSIGN(started.trust, io::TlsTrust::load_bundle());
  return {};
}

// Before dumps are forbidden, after which it cannot open what it has open.
Status trust_served(Started& started) {
  // Whoever has keys may have to inspect later.
  const bool may_inspect = started.keys.valid() || will_inspect(started);
  if (!may_inspect || started.served.authority.empty()) return {};
  TRY_ASSIGN(const Fd file, sys::memory_file("authority", started.served.authority));
  TRY_ASSIGN(started.served_trust,
             io::TlsTrust::load("/proc/self/fd/" + std::to_string(file.get())));
  return {};
}

// What was sealed for this sandbox when it was made, or since.
Status unseal_secrets(Started& started, std::string_view sealed) {
  if (!sealed.empty()) {
    TRY_ASSIGN(started.secrets, unseal(started.sealing.bytes(), sealed));
  }
  TRY(check_same_rules(started.policy->values(), started.secrets));
  TRY(SecretRules::create(started.secrets));
  return {};
}

// The values of the policy's secrets; what stands for each goes back.
Status receive_secrets(Started& started) {
  for (const policy::SecretRule& rule : policy::rules_with_values(started.policy->values())) {
    TRY_ASSIGN(sys::Message message, sys::recv_message(kGatewayControlFd, kMostGatewayMessage));
    if (!message.bytes.starts_with(kGatewaySecret))
      return fail(Error(Code::kCancelled, "whoever started the gateway wants it no more"));
    SecretEntry entry{.rule = rule};
    entry.value = std::make_shared<const SecretValue>(std::string_view(message.bytes).substr(1));
    wipe(message.bytes);
    if (policy::is_proxy_password(rule)) {
      // Nothing stands for it inside.
      TRY(policy::check_proxy_password(entry.value->bytes()));
      say(kGatewayPlaceholder, "");
      started.secrets.push_back(std::move(entry));
      continue;
    }
    TRY_ASSIGN(entry.placeholder, placeholder_of(rule, entry.value->bytes(), random_bytes));
    say(kGatewayPlaceholder, entry.placeholder);
    started.secrets.push_back(std::move(entry));
  }
  // That they fit together is said now.
  TRY(SecretRules::create(started.secrets));
  return {};
}

// The descriptors behind the policy's, by their letters.
Status take_descriptors(sys::Message& first, Started& started) {
  const std::size_t end = std::min(first.bytes.find('\n'), first.bytes.size());
  const std::string letters = first.bytes.substr(std::min(end + 1, first.bytes.size()));
  started.sandbox = first.bytes.substr(0, end);
  if (first.descriptors.size() != 1 + letters.size())
    return fail(Error::internal("the start has other descriptors than it says"));
  for (std::size_t at = 0; at < letters.size(); ++at) {
    Fd& descriptor = first.descriptors[1 + at];
    if (letters[at] == kGatewayRecords) {
      started.audit = std::move(descriptor);
      TRY_ASSIGN(started.audit_reader, open_audit_reader(started.audit.get()));
    } else if (letters[at] == kGatewayChain) {
      started.chain_file = std::move(descriptor);
    } else if (letters[at] == kGatewayHead) {
      TRY_ASSIGN(const std::string text, sys::read_again(descriptor.get(), kAuditHeadBytes));
      if (text.empty()) {
        started.known = AuditHead();
      } else {
        TRY_ASSIGN(started.known, AuditHead::from_bytes(text));
      }
    } else if (letters[at] == kGatewayKeys) {
      started.keys = std::move(descriptor);
    } else if (letters[at] == kGatewayAlarm) {
      started.alarm = std::move(descriptor);
    } else if (letters[at] == kGatewayMinter) {
      started.values = std::move(descriptor);
    } else if (letters[at] == kGatewayCertificate) {
      started.certificate_to = std::move(descriptor);
    } else if (letters[at] == kGatewayServed) {
      TRY_ASSIGN(const std::string text, sys::read_again(descriptor.get(), kMostServed));
      TRY_ASSIGN(started.served, parse_served_domain(text));
    } else {
      return fail(Error::internal("the start has a descriptor that nobody knows"));
    }
  }
  return {};
}

// What commands made, as the sandbox's minter has it now; the one with the policy is older. Where a
// minter is to be and says nothing, such a secret has no value.
Status take_minted(Started& started) {
  if (!started.values.valid()) return {};
  const auto known = [&](const std::string& name) -> SecretEntry* {
    for (SecretEntry& entry : started.secrets)
      if (entry.rule.name == name) return &entry;
    return nullptr;
  };
  for (;;) {
    pollfd entry{started.values.get(), POLLIN, 0};
    if (TEMP_FAILURE_RETRY(::poll(&entry, 1, kMinterPatienceMs)) <= 0) break;
    auto message = sys::recv_message(started.values.get(), kMostMintedWord);
    if (!message.has_value() || message->bytes.empty()) break;
    const SecretValue bytes = SecretValue::take(message->bytes);
    TRY_ASSIGN(MintedWord word, decode_minted(bytes.bytes()));
    if (word.kind == MintedWord::Kind::kEnd) return {};
    SecretEntry* const secret = known(word.secret);
    if (secret == nullptr) continue;
    secret->value = nullptr;
    if (word.kind != MintedWord::Kind::kValue) continue;
    if (!check_value_of(secret->rule, word.minted.value.bytes()).has_value()) continue;
    secret->value = std::make_shared<const SecretValue>(std::move(word.minted.value));
    secret->expires = word.minted.expires;
  }
  for (SecretEntry& entry : started.secrets)
    if (entry.rule.source.kind == policy::SecretSource::Kind::kCommand) entry.value = nullptr;
  return {};
}

// Keys for the gateways that come, with what this one was given.
Status keep(const Started& started) {
  if (started.authority == nullptr)
    return fail(Error::invalid("a policy that does not inspect TLS needs no keys"));
  const SecretValue sealing = make_sealing_key();
  std::string sealed;
  if (!started.secrets.empty()) {
    TRY_ASSIGN(sealed, seal(sealing.bytes(), started.secrets));
  }
  if (sealed.size() > kMostLivePolicy)
    return fail(Error::exhausted("the secrets take " + std::to_string(sealed.size()) +
                                 " bytes when they are sealed; allowed are at most " +
                                 std::to_string(kMostLivePolicy)));
  TRY_ASSIGN(const Fd keys, write_keys(sealing.bytes(), *started.authority));
  say(kGatewayKept, sealed, std::array{keys.get()});
  return {};
}

// nullopt: it was asked for keys, and that was all.
Result<std::optional<Started>> receive_start(bool fixed) {
  TRY_ASSIGN(sys::Message first, sys::recv_message(kGatewayControlFd, kMostGatewayMessage));
  if (first.descriptors.empty()) return fail(Error::internal("the start has no policy"));
  Started started;
  started.fixed_floor = fixed;
  TRY_ASSIGN(const std::string text, sys::read_again(first.descriptors[0].get(), kMostPolicy));
  const PolicyText parts = split_policy(text);
  TRY_ASSIGN(started.policy, compiled(parts.policy, fixed));
  TRY(take_descriptors(first, started));
  TRY(trust_served(started));
  TRY(forbid_dumps());
  if (started.audit.valid()) {
    TRY_ASSIGN(std::string bytes, sys::read_again(started.chain_file.get(), kMostChain));
    const SecretValue key = SecretValue::take(bytes);
    TRY_ASSIGN(started.chain, AuditChainKey::decode(key.bytes()));
    started.chain_file.reset();
  }
  if (started.keys.valid()) {
    TRY_ASSIGN(SandboxKeys keys, read_keys(started.keys.get()));
    started.sealing = std::move(keys.sealing);
    started.authority = std::move(keys.authority);
    started.keys.reset();
  }
  if (!is_keyed(started))
    TRY(receive_secrets(started));
  else
    TRY(unseal_secrets(started, parts.sealed));
  TRY(take_minted(started));
  TRY(prepare_to_inspect(started));
  TRY_ASSIGN(sys::Message second, sys::recv_message(kGatewayControlFd, kMostGatewayMessage));
  if (second.bytes.starts_with(kGatewayKeep)) {
    TRY(keep(started));
    return std::nullopt;
  }
  if (second.descriptors.size() != kGatewaySockets)
    return fail(Error(Code::kCancelled, "whoever started the gateway wants it no more"));
  started.sockets = {.tcp = std::move(second.descriptors[0]),
                     .dns_udp = std::move(second.descriptors[1]),
                     .dns_tcp = std::move(second.descriptors[2])};
  return started;
}

Status shut_in(const Started& started, int parent) {
  Confinement how{.name = "caisson-gateway",
                  .parent = parent,
                  .keep = {kGatewayControlFd, started.sockets.tcp.get(),
                           started.sockets.dns_udp.get(), started.sockets.dns_tcp.get()},
                  .descriptors = kMostDescriptors,
                  .memory = kMostMemory,
                  .threads = Confinement::Threads::kLoop};
  if (started.audit.valid()) {
    how.keep.push_back(started.audit.get());
    how.keep.push_back(started.audit_reader.get());
  }
  if (started.values.valid()) how.keep.push_back(started.values.get());
  if (started.alarm.valid()) how.keep.push_back(started.alarm.get());
  return confine(how);
}

// What is said of a gateway once it serves.
struct Orders {
  bool fixed_floor = false;
  SecretValue sealing;
};

Status change(Gateway& gateway, const Orders& orders, std::string_view text) {
  const PolicyText parts = split_policy(text);
  TRY_ASSIGN(auto policy, compiled(parts.policy, orders.fixed_floor));
  if (parts.sealed.empty()) return gateway.update(std::move(policy));
  TRY_ASSIGN(std::vector<SecretEntry> secrets, unseal(orders.sealing.bytes(), parts.sealed));
  return gateway.update(std::move(policy), std::move(secrets));
}

// Takes policies that are to hold from now on, until the other end of the control socket is shut
// down or gone.
io::Async<void> follow_orders(io::Loop& loop, io::Stream& control, Gateway& gateway,
                              const Orders& orders) {
  std::vector<char> order(kMostGatewayMessage);
  for (;;) {
    // Each read is one message, since the socket keeps them apart.
    const auto size = co_await control.read(order);
    if (size.value_or(0) == 0) break;
    const std::string_view text(order.data(), *size);
    if (!text.starts_with(kGatewayUpdate)) break;
    const Status changed = change(gateway, orders, text.substr(1));
    if (changed.has_value())
      say(kGatewayUpdated, "");
    else
      say(kGatewayRefused, changed.error().message());
  }
  loop.stop();
}

// Nothing moves any more, and nobody hears why, until whoever started us shuts its end of the
// control socket down.
void stand_still() {
  for (;;) {
    pollfd entry{kGatewayControlFd, POLLIN, 0};
    if (::poll(&entry, 1, -1) < 0 && errno != EINTR) return;
    if (entry.revents == 0) continue;
    const auto order = sys::recv_message(kGatewayControlFd, kMostGatewayMessage);
    if (!order.has_value() || order->bytes.empty()) return;
  }
}

// New values, for as long as there is who makes them; then those that there are, to their end.
io::Async<void> follow_minter(io::Stream& minter, Gateway& gateway) {
  SecretBytes word(kMostMintedWord);
  for (;;) {
    const auto size = co_await minter.read(word);
    if (size.value_or(0) == 0) co_return;
    auto said = decode_minted({word.data(), *size});
    if (!said.has_value()) co_return;
    if (said->kind == MintedWord::Kind::kEnd) continue;
    SharedSecret value;
    if (said->kind == MintedWord::Kind::kValue)
      value = std::make_shared<const SecretValue>(std::move(said->minted.value));
    gateway.set_value(said->secret, std::move(value), said->minted.expires);
  }
}

io::Async<void> wait_for_records(io::Loop& loop, Gateway& gateway) {
  co_await gateway.wait_ended(io::Clock::now() + kLastRecords);
  loop.stop();
}

// The first and the last record of a run.
std::string edge_line(AuditKind kind, const std::string& sandbox, std::uint64_t revision,
                      const GatewayCounts& counts) {
  const AuditRecord record{
      .kind = kind, .bytes_up = counts.bytes_up, .bytes_down = counts.bytes_down};
  return audit_line(record, sandbox, revision, std::chrono::system_clock::now());
}

// The end of the records that are there may be whatever another gateway made of it, so it is read
// when this one has no rights any more; and not by what has read a sandbox's bytes. The keys of
// what is written are gone then.
Result<std::optional<AuditChain>> take_chain(Started& started) {
  if (!started.audit.valid()) return std::nullopt;
  TRY_ASSIGN(const AuditEnd end, read_audit_end(started.audit_reader.get(), started.chain));
  started.audit_reader.reset();
  TRY_ASSIGN(AuditChain chain,
             go_on(started.audit.get(), started.chain, end, started.known.value_or(AuditHead())));
  started.chain.key = SecretValue();
  return chain;
}

AuditWriter::Options audit_options(const Started& started) {
  AuditWriter::Options options{
      .sandbox = started.sandbox, .sync = started.policy->values().audit.sync, .most = kMostAudit};
  if (started.known)
    options.sealed = [](const AuditHead& head) { say(kGatewaySealed, head.bytes()); };
  return options;
}

Status serve(Started started) {
  // While what fails can still be said.
  TRY_ASSIGN(std::optional<AuditChain> chain, take_chain(started));
  const Fd alarm = std::move(started.alarm);
  io::Loop loop(kThreads);
  AuditWriter audit(loop, std::move(started.audit), std::move(chain), audit_options(started));
  TRY_ASSIGN(const std::unique_ptr<io::Stream> control, io::adopt(loop, Fd(kGatewayControlFd)));
  Report report;
  const Orders orders{.fixed_floor = started.fixed_floor, .sealing = std::move(started.sealing)};
  GatewayOptions options{.sandbox = started.sandbox,
                         .policy = std::move(started.policy),
                         .authority = std::move(started.authority),
                         .trust = std::move(started.trust),
                         .secrets = std::move(started.secrets),
                         .served = std::move(started.served),
                         .served_trust = std::move(started.served_trust)};
  options.record = [&](const AuditRecord& record, const std::string& line) {
    add_to_report(record, report);
    audit.write(record.kind, line);
  };
  bool terminated = false;
  options.on_terminate = [&](const std::string& why) {
    terminated = true;
    (void)sys::send_message(alarm.get(), std::string_view(why).substr(0, kMostAlarm), {});
    loop.stop();
  };
  TRY_ASSIGN(std::unique_ptr<Gateway> gateway,
             Gateway::start(loop, std::move(started.sockets), std::move(options)));
  std::unique_ptr<io::Stream> minter;
  if (started.values.valid()) {
    TRY_ASSIGN(minter, io::adopt(loop, std::move(started.values)));
    loop.spawn(follow_minter(*minter, *gateway));
  }
  audit.write(AuditKind::kBegin, edge_line(AuditKind::kBegin, started.sandbox, 1, {}));
  say(kGatewayReady, "");
  loop.spawn(follow_orders(loop, *control, *gateway, orders));
  loop.run();
  if (terminated) stand_still();
  // Connections that were open are recorded as they end.
  gateway->end();
  loop.spawn(wait_for_records(loop, *gateway));
  loop.run();
  const GatewayCounts counts = gateway->counts();
  audit.write(AuditKind::kEnd,
              edge_line(AuditKind::kEnd, started.sandbox, gateway->revision(), counts));
  audit.close();
  report.bytes_out = counts.bytes_up;
  report.bytes_in = counts.bytes_down;
  say(kGatewayDone, audit.head().encode() + "\n" + encode_report(report));
  return {};
}

Status run(int parent, bool fixed_floor) {
  TRY_ASSIGN(std::optional<Started> started, receive_start(fixed_floor));
  if (!started) return {};
  TRY(shut_in(*started, parent));
  return serve(*std::move(started));
}

}  // namespace

int main(int argc, char** argv) {
  int parent = 0;
  const bool fixed_floor = argc == 3 && std::string_view(argv[2]) == kGatewayFixedFloor;
  const std::string_view number = argc == 2 || fixed_floor ? argv[1] : "";
  const auto parsed = std::from_chars(number.data(), number.data() + number.size(), parent);
  if (number.empty() || parsed.ec != std::errc() || parsed.ptr != number.data() + number.size()) {
    std::fputs("caisson-gateway: started by caisson alone\n", stderr);
    return kStatusOfOurError;
  }
  const Status status = run(parent, fixed_floor);
  if (status.has_value()) return 0;
  say(kGatewayFailed, status.error().message());
  return kStatusOfOurError;
}
