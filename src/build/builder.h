// Builds an image from a plan: every step that runs or copies something does so in a fresh sandbox
// over the files so far, what it changed becomes a layer, and the layers become an image of the
// store.
//
//   TRY_ASSIGN(image::Store store, image::Store::open());
//   TRY_ASSIGN(BuildReport report, build(store, plan, options, print));
//   if (report.failure) …          // a step failed: its outcome and last lines
//   else report.image_id …         // in the store, with options.names
//
// A step whose parent, meaning and copied contents are the same as once before is taken from the
// store's cache; what one owner's builds made is taken for no other's (cache_owner). Steps run as
// the stage's USER with no network but the hosts of `net`, within `limits`. Nothing of a build is
// left but cache entries when it fails, is cancelled or is killed: its files are workspaces of the
// store, which the next sweep removes. Several builds may go on at once. Starts processes by
// forking: for programs with one thread.
#pragma once

#include <caisson/result.h>
#include <caisson/sandbox.h>
#include <caisson/spec.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "build/dockerignore.h"
#include "build/plan.h"
#include "image/reference.h"
#include "image/store.h"
#include "policy/settings.h"

namespace caisson::build {

// What one step may use, unless the caller says otherwise: 2 GiB of memory, no limit of processors,
// 2048 processes, 8 GiB and 1'000'000 files of changes (on tmpfs: half the memory), 30 minutes.
policy::Limits default_limits();

struct BuildOptions {
  int context_fd = -1;  // the context's directory, borrowed; -1: COPY has nothing to copy from
  IgnoreRules ignore;
  policy::Limits limits = default_limits();
  std::vector<std::string> net;  // HOST[:PORT], as egress/allow_list.h has them
  bool use_cache = true;
  // Whose results are taken and kept, besides: what others made of the same step is not seen, nor
  // do they see these. Empty: whoever else says nothing.
  std::string cache_owner;
  std::map<std::string, std::string> labels;  // added at the end
  policy::Settings settings;                  // `images` says what names of FROM mean
  std::vector<image::Reference> names;        // set when all is done
  // Archives of CopyStep::archive, by that text: borrowed descriptors of regular files.
  std::map<std::string, int> archives;
  image::UnpackLimits unpack;
  // Cancels the step under way; looked at between steps. Borrowed; may be null.
  const Control* control = nullptr;
  // Whether the build was cancelled.
  std::function<bool()> cancelled;
};

struct BuildEvent {
  enum class Kind : std::uint8_t {
    kNote,       // text: something to know that is no error
    kStarted,    // a step begins: text, stage, number
    kOutput,     // of the step under way: bytes, channel
    kCached,     // the step's result was there already
    kDone,       // the step is done: elapsed_ms, bytes of its layer (0: none)
    kFailed,     // the step failed: text
    kFinishing,  // the image is put together
  };
  Kind kind = Kind::kNote;
  std::uint32_t number = 0;  // of the step among all that are needed, from 1
  std::uint32_t total = 0;
  std::uint32_t line = 0;
  std::string stage;  // "build 2/5": the stage's name or number, the step's place in it
  std::string text;
  OutputChannel channel = OutputChannel::kStdout;
  std::string_view bytes;
  std::int64_t elapsed_ms = 0;
  std::uint64_t layer_bytes = 0;
};
using Events = std::function<void(const BuildEvent&)>;

// A step that did not succeed, for its own reasons.
struct StepFailure {
  std::string place;               // "Dockerfile:7"; empty where the plan has no file
  std::string step;                // "RUN make"
  std::string reason;              // "exit status 2", "memory_limit: …", "the context has no 'x'"
  std::optional<Outcome> outcome;  // of a command
  std::vector<std::string> tail;   // the last lines of its output
  std::string unknown_user;        // who it should have run as, where there is no such user
  // One sentence: "Dockerfile:7: RUN make: exit status 2".
  std::string text() const;
};

struct BuildReport {
  std::string image_id;  // empty where a step failed
  std::optional<StepFailure> failure;
  std::uint32_t steps = 0;   // that were needed
  std::uint32_t cached = 0;  // of these
  std::int64_t elapsed_ms = 0;
};

// Error: what is no step's fault: not_found (an image of FROM), cancelled, what the store or this
// host says; with "FILE:LINE: " where there is one.
Result<BuildReport> build(image::Store& store, const BuildPlan& plan, const BuildOptions& options,
                          const Events& events);

}  // namespace caisson::build
