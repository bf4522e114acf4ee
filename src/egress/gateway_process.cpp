#include "egress/gateway_process.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/guards.h"
#include "base/kernel_abi.h"
#include "base/paths.h"
#include "base/sys.h"
#include "egress/audit_keyring.h"
#include "launcher/gateway_protocol.h"
#include "policy/network_document.h"
#include "policy/network_policy.h"
#include "policy/upstream_proxy.h"

namespace caisson::egress {
namespace {

using launcher::kGatewayDone;
using launcher::kGatewayFailed;
using launcher::kGatewayPlaceholder;
using launcher::kGatewayReady;
using launcher::kGatewaySecret;
using launcher::kGatewayServe;
using launcher::kMostGatewayMessage;

constexpr int kPatienceMs = 10'000;

}  // namespace

Result<std::unique_ptr<GatewayProcess>> GatewayProcess::start(const std::string& sandbox,
                                                              const policy::NetworkPolicy& policy,
                                                              Records records, Fd alarm,
                                                              Fd values) {
  TRY_ASSIGN(const std::string program, helper_binary("caisson-gateway"));
  TRY_ASSIGN(SocketPair sockets, make_socket_pair(SOCK_SEQPACKET));
  TRY_ASSIGN(const Fd text, sys::memory_file("network-policy", policy::written(policy)));
  std::unique_ptr<GatewayProcess> gateway(new GatewayProcess());
  gateway->control_ = std::move(sockets.ours);
  TRY(gateway->child_.start(program, {program, std::to_string(::getpid())},
                            std::array{sockets.theirs.get()}));
  std::vector<int> descriptors = {text.get()};
  std::string first = sandbox + "\n";
  if (records.file.valid()) {
    descriptors.insert(descriptors.end(), {records.file.get(), records.chain.get()});
    first += {launcher::kGatewayRecords, launcher::kGatewayChain};
    gateway->head_ = std::move(records.head);
  }
  if (alarm.valid()) {
    descriptors.push_back(alarm.get());
    first += launcher::kGatewayAlarm;
  }
  if (values.valid()) {
    descriptors.push_back(values.get());
    first += launcher::kGatewayMinter;
  }
  SocketPair said;
  if (policy::inspects(policy)) {
    TRY_ASSIGN(said, make_socket_pair(SOCK_SEQPACKET));
    gateway->certificate_ = std::move(said.ours);
    descriptors.push_back(said.theirs.get());
    first += launcher::kGatewayCertificate;
  }
  TRY(sys::send_message(gateway->control_.get(), first, descriptors));
  return gateway;
}

GatewayProcess::~GatewayProcess() = default;

Status GatewayProcess::serve(GatewayDescriptors sockets) {
  const std::array descriptors = {sockets.tcp.get(), sockets.dns_udp.get(), sockets.dns_tcp.get()};
  const Status sent =
      sys::send_message(control_.get(), std::string_view(&kGatewayServe, 1), descriptors);
  // Where it has ended already, its last word says why.
  TRY(expect(kGatewayReady));
  return sent;
}

Result<std::vector<std::string>> GatewayProcess::give_secrets(const policy::NetworkPolicy& policy,
                                                              std::span<const SecretValue> values) {
  const std::vector<policy::SecretRule> rules = policy::rules_with_values(policy);
  std::vector<std::string> placeholders;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::string_view value = values[i].bytes();
    std::string message;
    message.reserve(value.size() + 1);  // no copy is left where it grew
    message += kGatewaySecret;
    message += value;
    const Status sent = sys::send_message(control_.get(), message, {});
    wipe(message);
    auto placeholder = expect(kGatewayPlaceholder);
    if (!placeholder.has_value())
      return fail(std::move(placeholder).error().with(policy::key_of(rules[i])));
    TRY(sent);
    if (policy::is_proxy_password(rules[i])) continue;
    placeholders.push_back(guard_off(Guard::kPlaceholderInside) ? std::string(value)
                                                                : placeholder->bytes.substr(1));
  }
  return placeholders;
}

Result<std::string> GatewayProcess::certificate() {
  pollfd entry{certificate_.get(), POLLIN, 0};
  if (TEMP_FAILURE_RETRY(::poll(&entry, 1, kPatienceMs)) <= 0)
    return fail(Error(Code::kDeadlineExceeded, "the gateway does not answer"));
  TRY_ASSIGN(sys::Message said, sys::recv_message(certificate_.get(), kMostGatewayMessage));
  if (!said.bytes.empty()) return std::move(said.bytes);
  if (auto why = fault()) return fail(*std::move(why));
  return fail(Error::internal("the gateway ended without a word"));
}

std::optional<Error> GatewayProcess::fault() {
  pollfd entry{control_.get(), POLLIN, 0};
  if (TEMP_FAILURE_RETRY(::poll(&entry, 1, 0)) <= 0) return std::nullopt;
  const auto word = sys::recv_message(control_.get(), kMostGatewayMessage);
  if (!word.has_value() || !word->bytes.starts_with(kGatewayFailed)) return std::nullopt;
  return Error::precondition("the gateway cannot start: " + word->bytes.substr(1));
}

Result<GatewayProcess::Kept> GatewayProcess::keep() {
  const Status sent =
      sys::send_message(control_.get(), std::string_view(&launcher::kGatewayKeep, 1), {});
  TRY_ASSIGN(sys::Message word, expect(launcher::kGatewayKept));
  TRY(sent);
  if (word.descriptors.size() != 1) return fail(Error::internal("the gateway gave no keys"));
  return Kept{.keys = std::move(word.descriptors[0]), .sealed = word.bytes.substr(1)};
}

Result<sys::Message> GatewayProcess::expect(char kind) {
  TRY_ASSIGN(sys::Message word, receive());
  if (word.bytes.starts_with(kGatewayFailed))
    return fail(Error::precondition("the gateway cannot start: " + word.bytes.substr(1)));
  if (!word.bytes.starts_with(kind))
    return fail(Error::internal("the gateway ended without a word"));
  return word;
}

Result<sys::Message> GatewayProcess::receive() {
  pollfd entry{control_.get(), POLLIN, 0};
  if (TEMP_FAILURE_RETRY(::poll(&entry, 1, kPatienceMs)) <= 0)
    return fail(Error(Code::kDeadlineExceeded, "the gateway does not answer"));
  return sys::recv_message(control_.get(), kMostGatewayMessage);
}

Result<GatewayReport> GatewayProcess::stop() {
  Result<sys::Message> word = fail(Error::unavailable("the gateway has ended before its sandbox"));
  if (::shutdown(control_.get(), SHUT_WR) == 0) word = receive();
  control_.reset();
  (void)child_.end();
  if (!word.has_value() || !word->bytes.starts_with(kGatewayDone))
    return fail(Error::unavailable("the gateway has ended before its sandbox"));
  const std::string_view told = std::string_view(word->bytes).substr(1);
  const std::size_t end = std::min(told.find('\n'), told.size());
  GatewayReport report;
  TRY_ASSIGN(report.audit, AuditHead::decode(told.substr(0, end)));
  // Where there is no room for it the report has it all the same.
  if (head_.valid() && report.audit.sequence > 0)
    static_cast<void>(write_head(head_.get(), report.audit));
  TRY_ASSIGN(report.counts, decode_report(told.substr(std::min(end + 1, told.size()))));
  return report;
}

}  // namespace caisson::egress
