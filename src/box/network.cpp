#include "box/network.h"

#include <fcntl.h>

#include <utility>

#include "egress/audit_file.h"

namespace caisson::box {

Result<Fd> records_file(int audit_fd) {
  Status claimed = egress::claim_audit(audit_fd);
  if (!claimed.has_value()) return fail(std::move(claimed).error().with("audit"));
  Fd audit(::fcntl(audit_fd, F_DUPFD_CLOEXEC, 3));
  if (!audit.valid()) return fail_errno("audit");
  return audit;
}

Result<std::unique_ptr<egress::GatewayProcess>> start_gateway(const std::string& id,
                                                              const policy::NetworkPolicy& policy,
                                                              int audit_fd) {
  Fd audit;
  if (audit_fd >= 0) {
    TRY_ASSIGN(audit, records_file(audit_fd));
  }
  auto started = egress::GatewayProcess::start(id, policy, std::move(audit));
  if (!started.has_value()) return fail(std::move(started).error().with("network"));
  return started;
}

Status open_gateway(egress::GatewayProcess& gateway, wall::Gateway sockets) {
  Status served = gateway.serve({.tcp = std::move(sockets.tcp),
                                 .dns_udp = std::move(sockets.dns_udp),
                                 .dns_tcp = std::move(sockets.dns_tcp)});
  if (!served.has_value()) return fail(std::move(served).error().with("network"));
  return {};
}

policy::NetworkReport end_gateway(egress::GatewayProcess& gateway) {
  auto told = gateway.stop();
  if (!told.has_value()) return {.complete = false};
  egress::Report& counts = told->counts;
  policy::NetworkReport report{.connections = counts.connections,
                               .bytes_up = counts.bytes_out,
                               .bytes_down = counts.bytes_in,
                               .refused = counts.refused};
  if (told->audit.sequence > 0) {
    report.audit_sequence = told->audit.sequence;
    report.audit_hash = std::move(told->audit.hash);
  }
  for (egress::Refusal& refusal : counts.refusals) {
    report.refusals.push_back({.target = std::move(refusal.target),
                               .reason = std::move(refusal.reason),
                               .count = refusal.count});
  }
  return report;
}

}  // namespace caisson::box
