#include "build/step_sandbox.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "box/access.h"
#include "box/result_json.h"
#include "egress/proxy.h"
#include "image/kept_layer.h"
#include "image/pack.h"

namespace caisson::build {
namespace {

constexpr std::size_t kMostTail = 16 * 1024;
constexpr std::size_t kTailLines = 25;
// A memory file system of the sandbox's own: nothing of it is in the image.
constexpr std::string_view kScriptPath = "/dev/shm/build-script";

// The end of what a command wrote.
class Tail {
 public:
  void add(std::string_view bytes) {
    if (bytes.size() > kMostTail) bytes.remove_prefix(bytes.size() - kMostTail);
    text_ += bytes;
    if (text_.size() > 2 * kMostTail) text_.erase(0, text_.size() - kMostTail);
  }
  std::vector<std::string> lines() const {
    std::vector<std::string> lines;
    std::string_view rest = text_;
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      lines.emplace_back(rest.substr(0, end));
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
    if (lines.size() > kTailLines)
      lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kTailLines));
    return lines;
  }

 private:
  std::string text_;
};

// Root's own disk where there are loop devices, else memory.
policy::LayerKind layer_kind() {
  return ::geteuid() == 0 && ::access("/dev/loop-control", R_OK | W_OK) == 0
             ? policy::LayerKind::kQuota
             : policy::LayerKind::kTmpfs;
}

// Whom the sandbox is made for. Of a range of ids the image's 1000 is the caller itself
// (image/ids.h), and so must the sandbox's own user be; without one there is a single id, and it is
// the command's.
std::string own_user(image::IdLayout layout, const std::string& user) {
  if (layout == image::IdLayout::kSubuid) return std::to_string(image::kUserId);
  return layout == image::IdLayout::kShifted || user.empty() ? "0" : user;
}

policy::SpecValues spec_of(const BuildOptions& options, std::string user, bool has_owners) {
  policy::SpecValues spec;
  spec.image = "build";
  spec.user = std::move(user);
  spec.privileges = has_owners ? policy::Privileges::kSudo : policy::Privileges::kNone;
  spec.hostname = "build";
  spec.limits = options.limits;
  spec.layer = layer_kind();
  policy::Limits& limits = spec.limits;
  // On a tmpfs what is written lies in memory, and a command needs some for itself.
  if (spec.layer == policy::LayerKind::kTmpfs && limits.memory.has_value())
    limits.disk = std::min(limits.disk.value_or(*limits.memory / 2), *limits.memory / 2);
  return spec;
}

void add_settings(std::map<std::string, std::string>& env,
                  const std::vector<std::string>& settings) {
  for (const std::string& setting : settings) {
    const std::size_t equals = setting.find('=');
    if (equals != std::string::npos)
      env.try_emplace(setting.substr(0, equals), setting.substr(equals + 1));
  }
}

}  // namespace

std::string reason_of(const Outcome& outcome) {
  const std::string sentence = box::verdict_sentence(outcome);
  if (outcome.verdict == Verdict::kExited) {
    const std::string status = "exit status " + std::to_string(outcome.exit_code);
    return sentence.empty() ? status : status + ": " + sentence;
  }
  return std::string(to_string(outcome.verdict)) + ": " + sentence;
}

Result<StepSandbox> StepSandbox::create(const BuildOptions& options, const image::ImageRef& root,
                                        const std::string& user) {
  const image::IdLayout layout = image::mapping_of_caller().layout;
  const bool has_owners = layout != image::IdLayout::kSingle;
  TRY_ASSIGN(const SandboxSpec spec,
             SandboxSpec::validate(spec_of(options, own_user(layout, user), has_owners)));
  CreateOptions create;
  create.keep_layer = true;
  create.egress_listener = !options.net.empty();
  create.root = &root;
  TRY_ASSIGN(Sandbox sandbox, Sandbox::create(spec, create));
  return StepSandbox(options, std::move(sandbox), has_owners);
}

box::FileClient StepSandbox::files() {
  if (has_owners_)
    return box::FileClient(box::Access::connection(sandbox_), "0", box::FileRights::kSudo);
  return box::FileClient(box::Access::connection(sandbox_), std::to_string(sandbox_.info().uid));
}

Result<std::optional<CommandFailure>> StepSandbox::run(
    const RunAction& action, const Output& output, const std::function<void(std::string)>& note) {
  Command command;
  command.arguments = action.command;
  command.env = action.env;
  command.workdir = action.workdir;
  command.user = action.user.empty() ? "0" : action.user;
  {
    box::FileClient inside = files();
    TRY(ensure_directory(inside, action.workdir, {}));
    if (!action.script.empty()) {
      std::string_view rest = action.script;
      TRY(inside.write(std::string(kScriptPath), 0755, 0, [&]() -> Result<std::string> {
        const std::string piece(rest.substr(0, 64 * 1024));
        rest.remove_prefix(piece.size());
        return piece;
      }));
      command.arguments.emplace_back(kScriptPath);
    }
    TRY(inside.settle());
    if (auto owner = find_owner(inside, command.user); !owner.has_value()) {
      if (owner.error().code() != Code::kInvalidArgument) return fail(std::move(owner).error());
      CommandFailure failure;
      failure.reason = owner.error().message();
      failure.unknown_user = command.user;
      return failure;
    }
  }
  std::optional<egress::EgressProxy> proxy;
  if (!options_->net.empty()) {
    TRY_ASSIGN(egress::AllowList allowed, egress::AllowList::parse(options_->net));
    TRY_ASSIGN(Fd listener, sandbox_.take_egress_listener());
    add_settings(command.env, egress::EgressProxy::environment(allowed));
    TRY_ASSIGN(proxy, egress::EgressProxy::start(std::move(listener), std::move(allowed)));
  }
  Tail tail;
  RunOptions run;
  run.control = options_->control;
  run.on_output = [&](OutputChannel channel, std::string_view bytes) {
    tail.add(bytes);
    output(channel, bytes);
    return true;
  };
  TRY_ASSIGN(RunResult result, sandbox_.run(command, run));
  if (proxy.has_value()) {
    const egress::Report report = proxy->stop();
    for (const egress::Refusal& refusal : report.refusals)
      note("not reached: " + refusal.target + ": " + refusal.reason);
  }
  if (result.outcome.verdict == Verdict::kCancelled)
    return fail(Error(Code::kCancelled, "the build was cancelled"));
  if (result.outcome.verdict == Verdict::kExited && result.outcome.exit_code == 0)
    return std::nullopt;
  CommandFailure failure;
  failure.reason = reason_of(result.outcome);
  failure.outcome = std::move(result.outcome);
  failure.tail = tail.lines();
  return failure;
}

Result<std::optional<image::LayerRef>> StepSandbox::finish(image::Store& store) {
  TRY_ASSIGN(const image::KeptLayer changes, sandbox_.take_layer());
  TRY(sandbox_.close());
  TRY_ASSIGN(image::PartialBlob blob, store.begin_blob(std::nullopt));
  auto packed = image::pack_layer_to(blob.file.get(), changes, {}, {});
  if (!packed.has_value() || packed->entries == 0) {
    TRY(store.discard_blob(std::move(blob)));
    if (!packed.has_value()) return fail(std::move(packed).error().with("packing the changes"));
    return std::nullopt;
  }
  TRY_ASSIGN(const std::string digest, store.commit_blob(std::move(blob)));
  if (digest != packed->digest)
    return fail(Error(Code::kDataLoss, "a layer is not on disk as it was written"));
  image::LayerRef layer;
  layer.blob = {.media_type = image::kLayerMediaType, .digest = digest, .size = packed->size};
  layer.diff_id = packed->diff_id;
  return layer;
}

}  // namespace caisson::build
