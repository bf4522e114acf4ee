#include "box/network.h"

#include <fcntl.h>

#include <utility>

namespace caisson::box {

Result<std::unique_ptr<egress::GatewayProcess>> start_gateway(const std::string& id,
                                                              const policy::NetworkPolicy& policy,
                                                              wall::Gateway sockets, int audit_fd) {
  egress::GatewayStart start{.sandbox = id,
                             .policy = policy,
                             .tcp = std::move(sockets.tcp),
                             .dns_udp = std::move(sockets.dns_udp),
                             .dns_tcp = std::move(sockets.dns_tcp)};
  if (audit_fd >= 0) {
    start.audit = Fd(::fcntl(audit_fd, F_DUPFD_CLOEXEC, 3));
    if (!start.audit.valid()) return fail_errno("audit");
  }
  auto started = egress::GatewayProcess::start(std::move(start));
  if (!started.has_value()) return fail(std::move(started).error().with("network"));
  return started;
}

policy::NetworkReport end_gateway(egress::GatewayProcess& gateway) {
  egress::Report told = gateway.stop();
  policy::NetworkReport report{.connections = told.connections,
                               .bytes_up = told.bytes_out,
                               .bytes_down = told.bytes_in,
                               .refused = told.refused};
  for (egress::Refusal& refusal : told.refusals) {
    report.refusals.push_back({.target = std::move(refusal.target),
                               .reason = std::move(refusal.reason),
                               .count = refusal.count});
  }
  return report;
}

}  // namespace caisson::box
