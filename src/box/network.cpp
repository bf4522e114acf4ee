#include "box/network.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <utility>

namespace caisson::box {

Result<Fd> records_file(int audit_fd) {
  struct stat info = {};
  if (::fstat(audit_fd, &info) != 0) return fail_errno("audit");
  // Whoever reads anything else could hold the gateway back.
  if (!S_ISREG(info.st_mode)) return fail(Error::invalid("audit: allowed is a regular file"));
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
  policy::NetworkReport report{.connections = told->connections,
                               .bytes_up = told->bytes_out,
                               .bytes_down = told->bytes_in,
                               .refused = told->refused};
  for (egress::Refusal& refusal : told->refusals) {
    report.refusals.push_back({.target = std::move(refusal.target),
                               .reason = std::move(refusal.reason),
                               .count = refusal.count});
  }
  return report;
}

}  // namespace caisson::box
