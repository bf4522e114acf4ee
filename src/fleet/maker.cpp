#include "fleet/maker.h"

#include <caisson/sandbox.h>

#include "base/paths.h"
#include "fleet/recipe.h"

namespace caisson::fleet {
std::string socket_of(const std::string& id) {
  return run_directory() + "/sandboxes/" + id + "/socket";
}

Result<Made> make_sandbox(const Recipe& recipe) {
  policy::SpecValues values = values_of(recipe);
  values.limits.timeout_ms = std::chrono::milliseconds(kUnclaimed).count();
  TRY_ASSIGN(const SandboxSpec spec, SandboxSpec::validate(std::move(values)));
  TRY_ASSIGN(Sandbox sandbox, Sandbox::create(spec, {.life = Life::kKept, .keep_layer = true}));
  const SandboxInfo& info = sandbox.info();
  return Made{.id = info.id,
              .socket = socket_of(info.id),
              .user = info.user,
              .workdir = recipe.workdir,
              .image = "sha256:" + info.image_id};
}

void end_sandbox(const std::string& id) {
  auto sandbox = Sandbox::connect(id);
  if (sandbox.has_value()) static_cast<void>(sandbox->end());
}

}  // namespace caisson::fleet
