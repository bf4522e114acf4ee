// libraries: build box egress guest launcher wall image policy base
// parser: src/build/template_job.cpp src/build/template_steps.cpp src/build/stage_state.cpp
//
// A build of a template: the job that the builder is told, compiled and every step of it applied
// over an empty image, as far as it goes without a sandbox; and the lines that the builder says.
#include "base/error.h"
#include "build/stage_state.h"
#include "build/template_job.h"

namespace {

using namespace caisson;         // NOLINT: a program of one file
using namespace caisson::build;  // NOLINT

bool same(const TemplateJob& one, const TemplateJob& other) {
  return encode(one) == encode(other) && one.archives == other.archives &&
         one.login.has_value() == other.login.has_value() && one.name == other.name;
}

void apply(const BuildPlan& plan) {
  VERIFY(plan.stages.size() == 1 && plan.stages[0].needed);
  StageState state(plan, {});
  for (const Step& step : plan.stages[0].steps) {
    const auto applied = state.apply(step);
    if (!applied.has_value()) return;
    VERIFY(!applied->key.empty());
    if (const auto* copy = std::get_if<CopyAction>(&applied->action)) {
      // Only from the archive that came with it, and never from beside it.
      VERIFY(copy->from == CopyStep::From::kArchive && copy->destination.starts_with('/'));
      for (const std::string& source : copy->sources)
        VERIFY(!source.starts_with('/') && source != ".." && !source.starts_with("../"));
    }
    if (const auto* run = std::get_if<RunAction>(&applied->action))
      VERIFY(!run->command.empty() && run->workdir.starts_with('/'));
    // Configurations grow with every step: enough of them.
    if (state.config().env.size() > 200) return;
  }
}

void check_job(std::string_view line) {
  const auto job = parse_template_job(line);
  if (!job.has_value()) {
    VERIFY(!job.error().message().empty());
    return;
  }
  VERIFY(job->spec.steps.size() <= kMaxTemplateSteps);
  const std::string written = encode(*job);
  VERIFY(!written.contains('\n'));
  if (written.size() <= kMaxJobLine) {
    const auto again = parse_template_job(written);
    VERIFY(again.has_value() && same(*again, *job));
  }
  for (std::uint32_t number = 0; number < 6; ++number)
    VERIFY(!template_step_name(job->spec, number).empty());
  const auto plan = plan_template(job->spec);
  if (plan.has_value()) apply(*plan);
}

void check_line(std::string_view line) {
  const auto said = parse_job_line(line);
  if (!said.has_value()) return;
  const auto again = parse_job_line(encode(*said));
  VERIFY(again.has_value() && again->index() == said->index() && encode(*again) == encode(*said));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view line(reinterpret_cast<const char*>(data), size);
  check_job(line);
  check_line(line);
  for (const std::string& word : split_list(line)) VERIFY(!word.empty() && !word.contains(','));
  return 0;
}
