// Builds a template from its steps, as a server would, for the tests: no command does it yet.
//
//   caisson_template_tool IMAGE NAME STEPS.json [HASH=ARCHIVE]…
//
// STEPS.json is {"steps":[…],"startCmd":"…","readyCmd":"…","force":false,"owner":"…"}. Prints the
// image's id, or the failure as clients of the template's interface read it, and then ends with 1.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "base/fd.h"
#include "build/template_steps.h"
#include "image/files.h"

namespace caisson::build {
namespace {

std::string text_of(const json::Value& value, std::string_view key) {
  const json::Value* found = value.find(key);
  return found != nullptr && found->as_string() != nullptr ? *found->as_string() : "";
}

Result<BuildReport> run(int argc, char** argv, std::vector<Fd>& archives) {
  TRY_ASSIGN(const std::string text, image::read_small_file(argv[3]));
  TRY_ASSIGN(const json::Value value, json::parse(text));
  TemplateSpec spec;
  spec.image = argv[1];
  if (const json::Value* steps = value.find("steps")) {
    TRY_ASSIGN(spec.steps, parse_template_steps(*steps));
  }
  spec.start_command = text_of(value, "startCmd");
  spec.ready_command = text_of(value, "readyCmd");
  const json::Value* force = value.find("force");
  spec.force = force != nullptr && force->as_bool() != nullptr && *force->as_bool();
  TRY_ASSIGN(const BuildPlan plan, plan_template(spec));
  BuildOptions options;
  options.cache_owner = text_of(value, "owner");
  TRY_ASSIGN(image::Reference name, image::parse_reference(argv[2]));
  options.names.push_back(std::move(name));
  for (int at = 4; at < argc; ++at) {
    const std::string given = argv[at];
    const std::size_t equals = given.find('=');
    archives.emplace_back(::open(given.c_str() + equals + 1, O_RDONLY | O_CLOEXEC));
    options.archives[given.substr(0, equals)] = archives.back().get();
  }
  TRY_ASSIGN(image::Store store, image::Store::open());
  return build(store, plan, options, [](const BuildEvent& event) {
    if (event.kind == BuildEvent::Kind::kCached) std::fprintf(stderr, "cached\n");
    if (event.kind == BuildEvent::Kind::kOutput)
      std::fprintf(stderr, "%.*s", static_cast<int>(event.bytes.size()), event.bytes.data());
  });
}

}  // namespace
}  // namespace caisson::build

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  std::vector<caisson::Fd> archives;
  const auto report = caisson::build::run(argc, argv, archives);
  if (!report.has_value()) {
    std::printf("%s\n", report.error().message().c_str());
    return 3;
  }
  if (report->failure.has_value()) {
    std::printf("%s\n", caisson::build::template_error(*report->failure).c_str());
    return 1;
  }
  std::printf("%s\n", report->image_id.c_str());
  return 0;
}
