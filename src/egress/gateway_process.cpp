#include "egress/gateway_process.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/kernel_abi.h"
#include "base/paths.h"
#include "base/sys.h"
#include "launcher/gateway_protocol.h"
#include "policy/network_document.h"

namespace caisson::egress {
namespace {

using launcher::kGatewayAuthority;
using launcher::kGatewayDone;
using launcher::kGatewayFailed;
using launcher::kGatewayPlaceholder;
using launcher::kGatewayReady;
using launcher::kGatewaySecret;
using launcher::kGatewayServe;
using launcher::kMostGatewayMessage;

constexpr int kPatienceMs = 10'000;

// A file without a name that holds the text.
Result<Fd> file_of(std::string_view text) {
  Fd file(::memfd_create("network-policy", MFD_CLOEXEC));
  if (!file.valid()) return fail_errno("memfd_create");
  while (!text.empty()) {
    const ssize_t count = TEMP_FAILURE_RETRY(::write(file.get(), text.data(), text.size()));
    if (count < 0) return fail_errno("write of the network policy");
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return file;
}

}  // namespace

Result<std::unique_ptr<GatewayProcess>> GatewayProcess::start(const std::string& sandbox,
                                                              const policy::NetworkPolicy& policy,
                                                              Fd audit) {
  TRY_ASSIGN(const std::string program, helper_binary("caisson-gateway"));
  TRY_ASSIGN(SocketPair sockets, make_socket_pair(SOCK_SEQPACKET));
  TRY_ASSIGN(const Fd text, file_of(policy::written(policy)));
  std::unique_ptr<GatewayProcess> gateway(new GatewayProcess());
  gateway->control_ = std::move(sockets.ours);
  TRY(gateway->child_.start(program, {program, std::to_string(::getpid())},
                            std::array{sockets.theirs.get()}));
  std::vector<int> descriptors = {text.get()};
  if (audit.valid()) descriptors.push_back(audit.get());
  TRY(sys::send_message(gateway->control_.get(), sandbox, descriptors));
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
      return fail(std::move(placeholder).error().with("network.secrets." + policy.secrets[i].name));
    TRY(sent);
    placeholders.push_back(std::move(*placeholder));
  }
  return placeholders;
}

Result<std::string> GatewayProcess::authority() {
  return expect(kGatewayAuthority);
}

Result<std::string> GatewayProcess::expect(char kind) {
  TRY_ASSIGN(const std::string word, receive());
  if (word.starts_with(kGatewayFailed))
    return fail(Error::precondition("the gateway cannot start: " + word.substr(1)));
  if (!word.starts_with(kind)) return fail(Error::internal("the gateway ended without a word"));
  return word.substr(1);
}

Result<std::string> GatewayProcess::receive() {
  pollfd entry{control_.get(), POLLIN, 0};
  if (TEMP_FAILURE_RETRY(::poll(&entry, 1, kPatienceMs)) <= 0)
    return fail(Error(Code::kDeadlineExceeded, "the gateway does not answer"));
  TRY_ASSIGN(sys::Message message, sys::recv_message(control_.get(), kMostGatewayMessage));
  return std::move(message.bytes);
}

Result<GatewayReport> GatewayProcess::stop() {
  Result<std::string> word = fail(Error::unavailable("the gateway has ended before its sandbox"));
  if (::shutdown(control_.get(), SHUT_WR) == 0) word = receive();
  control_.reset();
  (void)child_.end();
  if (!word.has_value() || !word->starts_with(kGatewayDone))
    return fail(Error::unavailable("the gateway has ended before its sandbox"));
  const std::string_view told = std::string_view(*word).substr(1);
  const std::size_t end = std::min(told.find('\n'), told.size());
  GatewayReport report;
  TRY_ASSIGN(report.audit, AuditHead::decode(told.substr(0, end)));
  TRY_ASSIGN(report.counts, decode_report(told.substr(std::min(end + 1, told.size()))));
  return report;
}

}  // namespace caisson::egress
