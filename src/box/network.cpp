#include "box/network.h"

#include <fcntl.h>

#include <algorithm>
#include <utility>

#include "base/guards.h"
#include "base/sys.h"
#include "box/secrets.h"
#include "egress/audit_file.h"
#include "policy/network_document.h"
#include "policy/network_policy.h"

namespace caisson::box {
namespace {

// Each is the one that some runtime reads and no other does; all but Node's replace what it trusts
// else, which is why the file has that too.
constexpr const char* kTrustVariables[] = {
    "SSL_CERT_FILE",                       // OpenSSL, curl, Python, Go, Ruby, Rust
    "CURL_CA_BUNDLE",                      // curl, of whatever library
    "GIT_SSL_CAINFO",                      // git
    "REQUESTS_CA_BUNDLE",                  // Python's requests
    "PIP_CERT",                            // pip
    "NODE_EXTRA_CA_CERTS",                 // Node, besides its own
    "npm_config_cafile",                   // npm
    "CARGO_HTTP_CAINFO",                   // cargo
    "DENO_CERT",                           // Deno
    "AWS_CA_BUNDLE",                       // clients of AWS
    "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE",  // gcloud
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",    // gRPC
    "HTTPLIB2_CA_CERTS",                   // Python's httplib2
    "BUNDLE_SSL_CA_CERT",                  // Ruby's bundler
    "NIX_SSL_CERT_FILE",                   // Nix
};

// Placeholders come to what was counted before.
Status check_environment(const std::vector<std::string>& environment) {
  std::size_t bytes = 0;
  for (const std::string& setting : environment) bytes += setting.size() + 1;
  if (environment.size() <= wall::kMaxPlanEnvironment && bytes <= wall::kMaxPlanEnvironmentBytes)
    return {};
  return fail(Error::invalid("env: with the placeholders of secrets more than " +
                             std::to_string(wall::kMaxPlanEnvironment) + " variables or " +
                             std::to_string(wall::kMaxPlanEnvironmentBytes) + " bytes"));
}

}  // namespace

Result<egress::Records> claim_records(int audit_fd) {
  auto keyring = egress::AuditKeyring::open(egress::AuditKeyring::usual_folder());
  if (!keyring.has_value()) return fail(std::move(keyring).error().with("audit"));
  auto claimed = egress::claim_audit(audit_fd, *keyring);
  if (!claimed.has_value()) return fail(std::move(claimed).error().with("audit"));
  egress::Records records;
  records.file = Fd(::fcntl(audit_fd, F_DUPFD_CLOEXEC, 3));
  if (!records.file.valid()) return fail_errno("audit");
  TRY_ASSIGN(records.chain, sys::memory_file("caisson-audit", claimed->chain.encode().bytes()));
  records.head = std::move(claimed->head);
  return records;
}

Result<std::unique_ptr<egress::GatewayProcess>> start_gateway(const std::string& id,
                                                              const policy::NetworkPolicy& policy,
                                                              int audit_fd, Fd alarm, Fd values) {
  egress::Records records;
  if (audit_fd >= 0) {
    TRY_ASSIGN(records, claim_records(audit_fd));
  }
  auto started = egress::GatewayProcess::start(id, policy, std::move(records), std::move(alarm),
                                               std::move(values));
  if (!started.has_value()) return fail(std::move(started).error().with("network"));
  return started;
}

bool may_terminate(const policy::NetworkPolicy& policy) {
  return std::ranges::any_of(policy.secrets, [](const policy::SecretRule& rule) {
    return rule.on_violation == policy::OnSecretViolation::kTerminate;
  });
}

Status complete_plan(egress::GatewayProcess& gateway, const policy::NetworkPolicy& policy,
                     std::vector<SecretValue> secrets, wall::Plan& plan) {
  TRY_ASSIGN(const std::vector<std::string> placeholders, gateway.give_secrets(policy, secrets));
  add_placeholders(plan.environment, policy, placeholders);
  return check_environment(plan.environment);
}

Result<std::string> authority_of(egress::GatewayProcess& gateway) {
  auto certificate = gateway.certificate();
  if (!certificate.has_value()) return fail(std::move(certificate).error().with("network"));
  return certificate;
}

Status check_gateway(egress::GatewayProcess& gateway) {
  if (auto why = gateway.fault()) return fail(std::move(*why).with("network"));
  return {};
}

Result<KeptNetwork> keep_gateway(egress::GatewayProcess& gateway,
                                 const policy::NetworkPolicy& policy) {
  auto kept = gateway.keep();
  if (!kept.has_value()) return fail(std::move(kept).error().with("network"));
  std::string text = policy::written(policy);
  if (!kept->sealed.empty()) text += "\n" + kept->sealed;
  return KeptNetwork{.keys = std::move(kept->keys), .text = std::move(text)};
}

void add_trust_variables(std::map<std::string, std::string>& env) {
  if (guard_off(Guard::kTrustVariables)) return;
  for (const char* name : kTrustVariables) env.try_emplace(name, wall::kTrustFile);
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
