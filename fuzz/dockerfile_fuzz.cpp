// libraries: build box egress guest launcher wall image policy base
// parser: src/build/dockerfile.cpp src/build/words.cpp src/build/plan.cpp src/build/stage_state.cpp
//
// A Dockerfile's bytes: parsed, planned, and every step of every stage applied over an empty image,
// as far as it goes without a sandbox.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "build/dockerfile.h"
#include "build/plan.h"
#include "build/stage_state.h"

namespace caisson::build {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const Dockerfile& file) {
  require(!file.instructions.empty() && file.instructions.size() <= kMaxInstructions);
  std::uint32_t last = 0;
  for (const Instruction& instruction : file.instructions) {
    require(instruction.line > last);
    last = instruction.line;
    require(!instruction.rest.empty() && instruction.rest.size() <= kMaxInstructionBytes);
    require(instruction.exec_form || instruction.list.empty());
    require(instruction.list.size() <= kMaxWords);
    require(instruction.documents.size() <= kMaxHereDocuments);
    for (const HereDocument& document : instruction.documents) require(!document.name.empty());
  }
}

void apply(const BuildPlan& plan, const Stage& stage) {
  StageState state(plan, {});
  for (const Step& step : stage.steps) {
    const auto applied = state.apply(step);
    if (!applied.has_value()) return;
    require(!applied->key.empty());
    if (const auto* copy = std::get_if<CopyAction>(&applied->action)) {
      require(copy->destination.starts_with('/'));
      for (const std::string& source : copy->sources) {
        require(!source.starts_with('/'));
        require(source != ".." && !source.starts_with("../"));
      }
    }
    if (const auto* run = std::get_if<RunAction>(&applied->action)) {
      require(!run->command.empty());
      require(run->workdir.starts_with('/'));
    }
    // Configurations grow with every step: enough of them.
    if (state.config().env.size() > 200 || state.config().exposed_ports.size() > 200) return;
  }
}

}  // namespace
}  // namespace caisson::build

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caisson::build;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto file = parse_dockerfile(text, "Dockerfile");
  if (!file.has_value()) {
    require(file.error().message().starts_with("Dockerfile"));
    return 0;
  }
  check(*file);
  const auto plan = plan_dockerfile(*file, {.build_args = {{"X", "ex"}}});
  if (!plan.has_value()) {
    require(plan.error().message().starts_with("Dockerfile"));
    return 0;
  }
  for (std::size_t at = 0; at < plan->stages.size(); ++at) {
    const Stage& stage = plan->stages[at];
    if (stage.base.kind == StageBase::Kind::kStage) require(stage.base.stage < at);
    for (const Step& step : stage.steps)
      if (const auto* copy = std::get_if<CopyStep>(&step.what);
          copy != nullptr && copy->from == CopyStep::From::kStage)
        require(copy->stage < at);
    if (stage.needed) apply(*plan, stage);
  }
  // Asked for one stage, the plan is that, or there is none of this name.
  const auto part = plan_dockerfile(*file, {.build_args = {}, .target = "part"});
  if (part.has_value()) require(part->stages[part->target].name == "part");
  if (plan_dockerfile(*file, {.build_args = {}, .target = "0"}).has_value())
    require(plan->stages[0].line > 0);
  return 0;
}
