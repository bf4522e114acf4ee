// caisson-gateway: decides what leaves one sandbox; see gateway.h and
// launcher/gateway_protocol.h.
//
//   caisson-gateway PARENT           its socket is descriptor 3; PARENT is who started it
#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/sys.h"
#include "egress/confine.h"
#include "egress/gateway/gateway.h"
#include "egress/report.h"
#include "io/stream.h"
#include "launcher/gateway_protocol.h"
#include "policy/network_document.h"

namespace {

using namespace caisson;          // NOLINT: a program of one file
using namespace caisson::egress;  // NOLINT
using namespace launcher;         // NOLINT

constexpr int kStatusOfOurError = 125;
// For names that are looked up: each waits for one answer.
constexpr unsigned kThreads = 8;
constexpr std::size_t kMostMemory = 512u << 20;
constexpr std::size_t kMostDescriptors = 65'536;
constexpr std::size_t kMostPolicy = 16u << 20;
constexpr std::chrono::seconds kLastRecords{1};

struct Started {
  std::string sandbox;
  std::shared_ptr<const policy::CompiledNetwork> policy;
  GatewaySockets sockets;
  Fd audit;
};

void say(char kind, std::string_view text) {
  (void)sys::send_message(kGatewayControlFd, kind + std::string(text), {});
}

Result<std::shared_ptr<const policy::CompiledNetwork>> compiled(std::string_view json) {
  TRY_ASSIGN(const policy::NetworkPolicy values, policy::parse_written_network_policy(json));
  return policy::CompiledNetwork::compile(values);
}

Result<Started> receive_start() {
  TRY_ASSIGN(sys::Message first, sys::recv_message(kGatewayControlFd, kMostGatewayMessage));
  if (first.descriptors.empty() || first.descriptors.size() > 2)
    return fail(Error::internal("the start has not one or two descriptors"));
  Started started;
  started.sandbox = std::move(first.bytes);
  TRY_ASSIGN(const std::string text, sys::read_again(first.descriptors[0].get(), kMostPolicy));
  TRY_ASSIGN(started.policy, compiled(text));
  if (first.descriptors.size() > 1) started.audit = std::move(first.descriptors[1]);
  TRY_ASSIGN(sys::Message second, sys::recv_message(kGatewayControlFd, kMostGatewayMessage));
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
  if (started.audit.valid()) how.keep.push_back(started.audit.get());
  return confine(how);
}

// Takes policies that are to hold from now on, until the other end of the control socket is shut
// down or gone.
io::Async<void> follow_orders(io::Loop& loop, io::Stream& control, Gateway& gateway) {
  std::vector<char> order(kMostGatewayMessage);
  for (;;) {
    // Each read is one message, since the socket keeps them apart.
    const auto size = co_await control.read(order);
    if (size.value_or(0) == 0) break;
    const std::string_view text(order.data(), *size);
    if (!text.starts_with(kGatewayUpdate)) break;
    auto policy = compiled(text.substr(1));
    if (policy.has_value()) {
      gateway.update(std::move(*policy));
      say(kGatewayUpdated, "");
    } else {
      say(kGatewayRefused, policy.error().message());
    }
  }
  loop.stop();
}

io::Async<void> wait_for_records(io::Loop& loop, Gateway& gateway) {
  co_await gateway.wait_ended(io::Clock::now() + kLastRecords);
  loop.stop();
}

// Where the records go. One that the file does not take is lost; the next one's number shows it.
class AuditFile {
 public:
  explicit AuditFile(Fd file) : file_(std::move(file)) {}
  void write(const std::string& line) {
    if (!file_.valid() || line.empty()) return;
    // The end of one that was cut off is not the beginning of this one.
    const std::string bytes = torn_ ? "\n" + line : line;
    const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
    if (count > 0) torn_ = static_cast<std::size_t>(count) < bytes.size();
  }

 private:
  Fd file_;
  bool torn_ = false;
};

Status serve(Started started) {
  io::Loop loop(kThreads);
  TRY_ASSIGN(const std::unique_ptr<io::Stream> control, io::adopt(loop, Fd(kGatewayControlFd)));
  Report report;
  GatewayOptions options{.sandbox = std::move(started.sandbox),
                         .policy = std::move(started.policy)};
  AuditFile audit(std::move(started.audit));
  options.record = [&](const AuditRecord& record, const std::string& line) {
    add_to_report(record, report);
    audit.write(line);
  };
  TRY_ASSIGN(std::unique_ptr<Gateway> gateway,
             Gateway::start(loop, std::move(started.sockets), std::move(options)));
  say(kGatewayReady, "");
  loop.spawn(follow_orders(loop, *control, *gateway));
  loop.run();
  // Connections that were open are recorded as they end.
  gateway->end();
  loop.spawn(wait_for_records(loop, *gateway));
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
