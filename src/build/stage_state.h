// One stage while it is built: the configuration so far, and what the next step means now.
//
//   StageState state(plan, base_config);
//   TRY_ASSIGN(Applied applied, state.apply(step));   // $VARIABLES expanded, config changed
//   // applied.action: what is to be done to the files, if anything
//
// Variables come from ENV (the image's included) before ARGs of the stage. Pure: nothing is opened
// or run here, so that a plan's meaning can be tested without a sandbox.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "build/plan.h"
#include "image/config.h"

namespace caisson::build {

struct RunAction {
  std::vector<std::string> command;
  // Not empty: given to the command as the path of a file, its last argument.
  std::string script;
  std::map<std::string, std::string> env;
  std::string user;     // empty: root
  std::string workdir;  // absolute
};

struct CopyAction {
  CopyStep::From from = CopyStep::From::kContext;
  std::size_t stage = 0;
  std::string image;
  std::string archive;
  std::vector<std::string> sources;  // relative, clean; may have wildcards
  // Contents given in the file itself, by name.
  std::vector<std::pair<std::string, std::string>> texts;
  std::string destination;      // absolute
  bool into_directory = false;  // it ends with '/'
  std::string owner;            // USER[:GROUP]; empty: see CopyStep
  std::optional<std::uint32_t> mode;
  bool unpack = false;  // ADD: local archives
};

// A directory that must be there.
struct DirectoryAction {
  std::string path;
  std::string owner;  // empty: root
};

using Action = std::variant<std::monostate, RunAction, CopyAction, DirectoryAction>;

struct Applied {
  Action action;
  // Everything that the step's result depends on beside the files under it and the copied
  // contents; equal texts mean the same step.
  std::string key;
  std::string created_by;  // for the image's history
};

class StageState {
 public:
  // `plan` is borrowed.
  StageState(const BuildPlan& plan, image::ImageConfig base);

  // Error: invalid, without the line (at_line() adds it); the state is then of no use any more.
  Result<Applied> apply(const Step& step);

  image::ImageConfig& config() { return config_; }
  const image::ImageConfig& config() const { return config_; }
  // A cached result takes the place of the configuration; ARGs stay.
  void replace_config(image::ImageConfig config) { config_ = std::move(config); }

 private:
  Result<std::string> expanded(std::string_view text, Quoting quoting = Quoting::kWord) const;
  std::optional<std::string> variable(std::string_view name) const;
  // Error: invalid, beyond the number of variables that an image may have here.
  Status set_env(const std::string& name, const std::string& value);
  std::vector<std::string> shell() const;
  std::string absolute(std::string_view path) const;

  Result<Applied> run(const RunStep& step);
  Result<Applied> copy(const CopyStep& step);
  Status declare(const ArgStep& step);
  Result<Applied> enter(const WorkdirStep& step);
  Result<Applied> become(const UserStep& step);
  Status set_command(const CommandStep& step);
  Status expose(const ExposeStep& step);

  const BuildPlan& plan_;
  image::ImageConfig config_;
  Variables arguments_;
  bool command_set_ = false;
};

// `path` seen from `directory`: absolute, without '.' and '..'.
std::string resolve_path(std::string_view directory, std::string_view path);

}  // namespace caisson::build
