// caisson-gateway: decides what leaves one sandbox; see gateway.h and gateway_process.h.
//
//   caisson-gateway PARENT           its socket is descriptor 3; PARENT is who started it
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "base/sys.h"
#include "egress/confine.h"
#include "egress/gateway/gateway.h"
#include "egress/gateway_process.h"
#include "io/stream.h"
#include "policy/network_document.h"

namespace {

using namespace caisson;          // NOLINT: a program of one file
using namespace caisson::egress;  // NOLINT

constexpr int kStatusOfOurError = 125;
// For names that are looked up: each waits for one answer.
constexpr unsigned kThreads = 8;
constexpr std::size_t kMostMemory = 512u << 20;
constexpr std::size_t kMostDescriptors = 65'536;
constexpr std::size_t kMostPolicy = 1u << 20;

struct Started {
  std::string sandbox;
  std::shared_ptr<const policy::CompiledNetwork> policy;
  GatewaySockets sockets;
  Fd audit;
};

void say(char kind, std::string_view text) {
  (void)sys::send_message(kGatewayControlFd, kind + std::string(text), {});
}

Result<Started> receive_start() {
  TRY_ASSIGN(sys::Message message, sys::recv_message(kGatewayControlFd, kMostGatewayMessage));
  const std::size_t count = message.descriptors.size();
  if (count != kGatewayDescriptors && count != kGatewayDescriptors + 1)
    return fail(Error::internal("the start has " + std::to_string(count) + " descriptors"));
  Started started;
  started.sandbox = std::move(message.bytes);
  started.sockets = {.tcp = std::move(message.descriptors[0]),
                     .dns_udp = std::move(message.descriptors[1]),
                     .dns_tcp = std::move(message.descriptors[2])};
  TRY_ASSIGN(const std::string text, sys::read_again(message.descriptors[3].get(), kMostPolicy));
  TRY_ASSIGN(const policy::NetworkPolicy values,
             policy::parse_network_policy(text, policy::Format::kJson));
  TRY_ASSIGN(started.policy, policy::CompiledNetwork::compile(values));
  if (count > kGatewayDescriptors) started.audit = std::move(message.descriptors[4]);
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
  if (started.audit.valid()) how.keep.push_back(started.audit.get());
  return confine(how);
}

// Serves until the other end of the control socket is shut down or gone.
io::Async<void> wait_for_end(io::Loop& loop, io::Stream& control) {
  std::array<char, 16> word;
  co_await control.read(word);
  loop.stop();
}

Status serve(Started started) {
  io::Loop loop(kThreads);
  TRY_ASSIGN(const std::unique_ptr<io::Stream> control, io::adopt(loop, Fd(kGatewayControlFd)));
  Report report;
  GatewayOptions options{.sandbox = std::move(started.sandbox),
                         .policy = std::move(started.policy)};
  options.record = [&report, audit_fd = started.audit.get()](const AuditRecord& record,
                                                             const std::string& line) {
    add_to_report(record, report);
    // A record that the file does not take is lost; the next one's number shows it.
    if (audit_fd >= 0) (void)!::write(audit_fd, line.data(), line.size());
  };
  TRY_ASSIGN(std::unique_ptr<Gateway> gateway,
             Gateway::start(loop, std::move(started.sockets), std::move(options)));
  say(kGatewayReady, "");
  loop.spawn(wait_for_end(loop, *control));
  loop.run();
  // Connections that were open are recorded as they end.
  gateway->end();
  loop.post([&loop] { loop.stop(); });
  loop.run();
  const GatewayCounts counts = gateway->counts();
  report.bytes_out = counts.bytes_up;
  report.bytes_in = counts.bytes_down;
  say(kGatewayDone, encode_report(report));
  return {};
}

Status run(int parent) {
  TRY_ASSIGN(Started started, receive_start());
  TRY(shut_in(started, parent));
  return serve(std::move(started));
}

}  // namespace

int main(int argc, char** argv) {
  int parent = 0;
  const std::string_view number = argc == 2 ? argv[1] : "";
  const auto parsed = std::from_chars(number.data(), number.data() + number.size(), parent);
  if (number.empty() || parsed.ec != std::errc() || parsed.ptr != number.data() + number.size()) {
    std::fputs("caisson-gateway: started by caisson alone\n", stderr);
    return kStatusOfOurError;
  }
  const Status status = run(parent);
  if (status.has_value()) return 0;
  say(kGatewayFailed, status.error().message());
  return kStatusOfOurError;
}
