// The sandbox of one step: made over the files so far, gone when the step is done, with what it
// changed packed into a layer of the store.
#pragma once

#include <caisson/sandbox.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "box/file_client.h"
#include "build/builder.h"
#include "build/copy.h"
#include "build/source.h"
#include "build/stage_state.h"
#include "image/layer.h"
#include "image/store.h"

namespace caisson::build {

// How a command ended that did not succeed.
struct CommandFailure {
  std::optional<Outcome> outcome;  // none: it was not started
  std::string reason;
  std::vector<std::string> tail;
  std::string unknown_user;
};

class StepSandbox {
 public:
  using Output = std::function<void(OutputChannel, std::string_view)>;

  // `user` is who commands will run as; `root` is borrowed for the call and its files must stay.
  static Result<StepSandbox> create(const BuildOptions& options, const image::ImageRef& root,
                                    const std::string& user);

  // Runs the command. nullopt: it succeeded. Error: cancelled, or what is not the command's fault.
  // `note` gets a sentence about each host that was refused to it.
  Result<std::optional<CommandFailure>> run(const RunAction& action, const Output& output,
                                            const std::function<void(std::string)>& note);
  // For file operations as root, until finish().
  box::FileClient files();
  // Whether files can belong to anybody but root here.
  bool has_owners() const { return has_owners_; }

  // Ends the sandbox. nullopt: nothing was changed.
  Result<std::optional<image::LayerRef>> finish(image::Store& store);

 private:
  StepSandbox(const BuildOptions& options, Sandbox sandbox, bool has_owners)
      : options_(&options), sandbox_(std::move(sandbox)), has_owners_(has_owners) {}

  const BuildOptions* options_;
  Sandbox sandbox_;
  bool has_owners_;
};

// "exit status 2", "memory_limit: failed: it needed more memory …".
std::string reason_of(const Outcome& outcome);

}  // namespace caisson::build
