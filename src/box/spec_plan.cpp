#include "box/spec_plan.h"

#include <fcntl.h>

#include <map>
#include <string>
#include <utility>

#include "box/network.h"
#include "box/sockets.h"
#include "policy/network_policy.h"

namespace caisson::box {

wall::Plan plan_of(const policy::SpecValues& spec, const Account& account) {
  wall::Plan plan;
  if (!spec.hostname.empty()) plan.hostname = spec.hostname;
  plan.user_uid = account.uid;
  plan.user_gid = account.gid;
  plan.privileges = static_cast<std::uint8_t>(spec.privileges);
  plan.syscall_profile = static_cast<std::uint8_t>(spec.profile);
  plan.on_refusal = static_cast<std::uint8_t>(spec.on_refusal);
  plan.layer = static_cast<std::uint8_t>(spec.layer);
  plan.require_hard_limits = spec.require_hard_limits ? 1 : 0;
  const policy::Limits& limits = spec.limits;
  plan.cpu_milli = limits.cpu_milli.value_or(0);
  plan.memory = limits.memory.value_or(0);
  plan.pids = limits.pids.value_or(0);
  plan.disk = limits.disk.value_or(0);
  plan.inodes = limits.inodes.value_or(0);
  plan.open_files = limits.open_files.value_or(0);
  plan.output = limits.output.value_or(0);
  plan.timeout_ms = limits.timeout_ms.value_or(0);
  plan.cpu_time_ms = limits.cpu_time_ms.value_or(0);
  plan.io_read = limits.io_read.value_or(0);
  plan.io_write = limits.io_write.value_or(0);
  plan.io_read_ops = limits.io_read_ops.value_or(0);
  plan.io_write_ops = limits.io_write_ops.value_or(0);
  return plan;
}

Status add_defaults(wall::Plan& plan, const policy::SpecValues& spec, const ImageDefaults& defaults,
                    Trust trust) {
  std::map<std::string, std::string> env = spec.env;
  if (trust == Trust::kGateway) add_trust_variables(env);
  env.insert(defaults.env.begin(), defaults.env.end());
  std::size_t bytes = 0;
  for (const auto& [name, value] : env) {
    plan.environment.push_back(name + "=" + value);
    bytes += plan.environment.back().size() + 1;
  }
  if (env.size() > wall::kMaxPlanEnvironment || bytes > wall::kMaxPlanEnvironmentBytes)
    return fail(Error::invalid(
        "env: found " + std::to_string(env.size()) + " variables of " + std::to_string(bytes) +
        " bytes, the image's included; allowed are " + std::to_string(wall::kMaxPlanEnvironment) +
        " of " + std::to_string(wall::kMaxPlanEnvironmentBytes) + " bytes at most"));
  plan.workdir = spec.workdir.empty() ? defaults.workdir : spec.workdir;
  plan.directories = defaults.directories;
  return {};
}

Status cover_sockets(const policy::Grant& grant, int directory_fd, wall::Plan& plan,
                     PlanDescriptors& descriptors, Fd& cover) {
  auto sockets = find_sockets(directory_fd);
  if (!sockets.has_value()) return fail(std::move(sockets).error().with("files: " + grant.from));
  for (const std::string& path : *sockets) {
    if (plan.grants.size() >= policy::kMaxGrants)
      return fail(Error::precondition(
          "files: " + grant.from + ": the granted directories hold too many sockets of the host"));
    if (!cover.valid()) {
      cover = Fd(::open("/dev/null", O_PATH | O_CLOEXEC));
      if (!cover.valid()) return fail_errno("open /dev/null");
    }
    plan.grants.push_back({.fd = descriptors.add(cover.get()),
                           .to = grant.to + "/" + path,
                           .directory = false,
                           .cover = true});
  }
  return {};
}

}  // namespace caisson::box
