#include "fleet/maker.h"

#include <caisson/sandbox.h>
#include <unistd.h>

#include "base/paths.h"

namespace caisson::fleet {
namespace {

// Many files are open in a sandbox that serves; the command line's default is for one command.
constexpr std::uint64_t kOpenFiles = 65'536;
constexpr std::uint64_t kInodes = 1'000'000;

}  // namespace

std::string socket_of(const std::string& id) {
  return run_directory() + "/sandboxes/" + id + "/socket";
}

std::map<std::string, std::string> own_variables(const std::string& id) {
  return {{"E2B_SANDBOX", "true"}, {"E2B_SANDBOX_ID", id}};
}

Result<Made> make_sandbox(const Recipe& recipe) {
  policy::SpecValues values;
  values.image = recipe.image;
  values.privileges = policy::Privileges::kSudo;
  // On a disk where that can be held: a sandbox of a server lives long, and its files are not to
  // take its memory.
  const bool root = ::geteuid() == 0;
  values.layer = root ? policy::LayerKind::kQuota : policy::LayerKind::kTmpfs;
  values.limits.cpu_milli = recipe.cpu_milli;
  values.limits.memory = recipe.memory_bytes;
  values.limits.pids = recipe.pids;
  values.limits.disk = recipe.disk_bytes;
  values.limits.inodes = kInodes;
  values.limits.open_files = kOpenFiles;
  values.limits.output = std::nullopt;
  values.limits.timeout_ms = std::chrono::milliseconds(kUnclaimed).count();
  values.limits.cpu_time_ms = std::nullopt;
  TRY_ASSIGN(const SandboxSpec spec, SandboxSpec::validate(std::move(values)));
  TRY_ASSIGN(Sandbox sandbox, Sandbox::create(spec, {.life = Life::kKept, .keep_layer = true}));
  const SandboxInfo& info = sandbox.info();
  return Made{.id = info.id,
              .socket = socket_of(info.id),
              .user = info.user,
              .image = "sha256:" + info.image_id};
}

void end_sandbox(const std::string& id) {
  auto sandbox = Sandbox::connect(id);
  if (sandbox.has_value()) static_cast<void>(sandbox->end());
}

}  // namespace caisson::fleet
