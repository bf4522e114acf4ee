// What is to be built: the stages that the target needs, and their steps in order.
//
//   TRY_ASSIGN(Dockerfile file, parse_dockerfile(text, "Dockerfile"));
//   TRY_ASSIGN(BuildPlan plan, plan_dockerfile(file, {.build_args = …, .target = "app"}));
//
// A plan comes from a Dockerfile (here) or from a template's list of steps (template_steps.h); the
// builder knows only plans. What depends on an image, such as `$PATH` in ENV, is still unexpanded:
// stage_state.h does that when the base image is known. Pure; plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "build/dockerfile.h"
#include "build/words.h"

namespace caisson::build {

using Pairs = std::vector<std::pair<std::string, std::string>>;

struct RunStep {
  // Exec form: program and arguments. Shell form: one text.
  std::vector<std::string> command;
  bool shell_form = true;
  // Of templates: this instead of the stage's shell and user. Empty: the stage's.
  std::vector<std::string> shell;
  std::string user;
  // A script that brings its own interpreter: written to a file that the command is given as its
  // last argument.
  std::string script;
  bool operator==(const RunStep&) const = default;
};

struct CopyStep {
  enum class From : std::uint8_t { kContext, kStage, kImage, kArchive };
  bool add = false;  // ADD: local archives are unpacked
  From from = From::kContext;
  std::size_t stage = 0;  // kStage
  std::string image;      // kImage: a reference
  std::string archive;    // kArchive: the digest by which the caller gives it (BuildOptions)
  std::vector<std::string> sources;
  std::string destination;
  std::string owner;  // USER[:GROUP], unexpanded; empty: root's, of stages and images as there
  std::string mode;   // octal, unexpanded; empty: as in the source
  std::vector<HereDocument> documents;  // those among `sources` have their name there as <<NAME
  bool operator==(const CopyStep&) const = default;
};

struct ArgStep {
  // Without a value: only what the caller gives.
  std::vector<std::pair<std::string, std::optional<std::string>>> arguments;
};
struct EnvStep {
  Pairs variables;
  bool plain_text = false;  // of templates: names and quotes are as they are, $NAME has its value
};
struct LabelStep {
  Pairs labels;
};
struct WorkdirStep {
  std::string path;
  bool to_user = false;  // of templates: belongs to the stage's user
};
struct UserStep {
  std::string user;
  bool create = false;  // of templates: made where it does not exist
};
struct CommandStep {  // CMD and ENTRYPOINT
  bool entrypoint = false;
  std::vector<std::string> command;  // as in RunStep
  bool shell_form = true;
};
struct ShellStep {
  std::vector<std::string> shell;
};
struct ExposeStep {
  std::vector<std::string> ports;
};
struct VolumeStep {
  std::vector<std::string> paths;
};
struct StopSignalStep {
  std::string signal;
};
struct MaintainerStep {
  std::string name;
};
// Understood, without an effect here: HEALTHCHECK.
struct NotedStep {};

struct Step {
  std::uint32_t line = 0;  // 0: not from a file
  std::string text;        // "RUN make install": for progress and history
  bool force = false;      // of templates: never from the cache, nor what follows
  std::variant<RunStep, CopyStep, ArgStep, EnvStep, LabelStep, WorkdirStep, UserStep, CommandStep,
               ShellStep, ExposeStep, VolumeStep, StopSignalStep, MaintainerStep, NotedStep>
      what;
};

struct StageBase {
  enum class Kind : std::uint8_t { kScratch, kImage, kStage };
  Kind kind = Kind::kScratch;
  std::string image;      // kImage
  std::size_t stage = 0;  // kStage
};

struct Stage {
  std::string name;  // empty: only its number
  std::uint32_t line = 0;
  std::string text;
  StageBase base;
  std::vector<Step> steps;
  bool needed = false;  // by the target
};

struct BuildPlan {
  std::string file_name;  // for messages
  char escape = '\\';
  std::vector<Stage> stages;
  std::size_t target = 0;
  // ARGs before the first FROM, and what the platform predefines; a stage has those it names.
  Variables globals;
  // What the caller gave.
  Variables build_args;
  // Of templates: added to the image's at the end.
  std::map<std::string, std::string> labels;
  std::vector<std::string> notes;
};

struct PlanOptions {
  Variables build_args;
  std::string target;                  // a stage's name or number; empty: the last
  std::string architecture = "amd64";  // as OCI names it
};

// Error: invalid with "FILE:LINE: ", unimplemented for what is Docker's but not supported.
Result<BuildPlan> plan_dockerfile(const Dockerfile& file, const PlanOptions& options);

// Marks what `target` needs.
void mark_needed(BuildPlan& plan);

// ARGs that need no ARG instruction: a proxy's addresses. They are in no history and no cache key.
bool is_proxy_argument(std::string_view name);

}  // namespace caisson::build
