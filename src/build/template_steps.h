// A template as E2B's builder describes it, compiled into the same plan as a Dockerfile: a list of
// steps over an image.
//
//   {"type":"RUN","args":[COMMAND,USER?]}        a login bash, as the current user or USER
//   {"type":"COPY","args":[SOURCE,DESTINATION,OWNER?,MODE?],"filesHash":HEX}
//   {"type":"WORKDIR","args":[PATH]}             made where it is missing, the user's
//   {"type":"USER","args":[NAME]}                made where there is no such user
//   {"type":"ENV","args":[NAME,VALUE,…]}         $NAME in a value is the variable's value
//
// Any step may have "force":true: it and what follows are not taken from the cache. The files of a
// COPY come as a tar archive that the caller has by its hash (BuildOptions::archives). What starts
// in a sandbox of the template, and how it is known to be ready, are kept as labels of the image.
// Pure; the values are a client's and hostile.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "build/builder.h"
#include "build/plan.h"

namespace caisson::build {

inline constexpr std::size_t kMaxTemplateSteps = 1000;
inline constexpr std::string_view kStartCommandLabel = "caisson.template.start-command";
inline constexpr std::string_view kReadyCommandLabel = "caisson.template.ready-command";

struct TemplateStep {
  std::string type;
  std::vector<std::string> args;
  std::string files_hash;
  bool force = false;
};

enum class Provision : std::uint8_t { kNo, kYes };

struct TemplateSpec {
  std::string image;   // a reference of the store
  std::string called;  // what people call the image; empty: the same
  std::vector<TemplateStep> steps;
  std::string start_command, ready_command;
  bool force = false;
  // What every template of E2B's has: the user `user` with a home, a password-less sudo where there
  // is sudo, and /code and /usr/local for everybody to write. Not for an image that is a template
  // already.
  Provision provision = Provision::kYes;
  std::string user = "user";
  std::string workdir = "/home/user";
};

// The list of steps as JSON. Error: invalid, with the place ("steps[3].args: …").
Result<std::vector<TemplateStep>> parse_template_steps(const json::Value& steps);

// Error: invalid, with the step's number.
Result<BuildPlan> plan_template(const TemplateSpec& spec);

// How clients call the step of that number among all of the plan's (BuildEvent::number): "base" for
// the image and what every template has, else the step's own number from 1.
std::string template_step_name(const TemplateSpec& spec, std::uint32_t number);

// What E2B's clients expect to read about a failure: "failed to run command 'make': exit status 2".
std::string template_error(const StepFailure& failure);

}  // namespace caisson::build
