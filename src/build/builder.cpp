#include "build/builder.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <memory>
#include <utility>

#include "base/kernel_abi.h"
#include "base/sha256.h"
#include "base/sys.h"
#include "build/copy.h"
#include "build/copy_content.h"
#include "build/stage_files.h"
#include "build/stage_state.h"
#include "build/step_sandbox.h"
#include "image/config.h"

namespace caisson::build {
namespace {

using image::printable;
using std::chrono::steady_clock;

constexpr std::string_view kKeyVersion = "caisson-build-1";

std::int64_t since(steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - start).count();
}

std::string now_text() {
  const std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string hash_of(std::initializer_list<std::string_view> fields) {
  Sha256 hash;
  for (const std::string_view field : fields) {
    hash.update(std::to_string(field.size()) + ":");
    hash.update(field);
  }
  return hash.finish();
}

// What became of a stage: enough to build on it and to copy from it.
struct BuiltStage {
  image::ImageConfig config;
  std::string parent;  // the image whose layers these are; empty: none
  std::string pending;
  std::unique_ptr<StageFiles> files;
};

// Ends a build because of a step of its own; everything else is an Error.
struct Failed {
  std::string reason;
  std::optional<Outcome> outcome;
  std::vector<std::string> tail;
  std::string unknown_user;
};

class Builder {
 public:
  Builder(image::Store& store, const BuildPlan& plan, const BuildOptions& options,
          const Events& events)
      : store_(store), plan_(plan), options_(options), events_(events), content_(store, options) {}

  Result<BuildReport> run() {
    const steady_clock::time_point start = steady_clock::now();
    for (const std::string& text : plan_.notes) note(text);
    count_steps();
    built_.resize(plan_.stages.size());
    for (std::size_t at = 0; at < plan_.stages.size(); ++at) {
      if (!plan_.stages[at].needed) continue;
      TRY(build_stage(at));
      if (report_.failure.has_value()) {
        report_.elapsed_ms = since(start);
        return report_;
      }
    }
    TRY(conclude());
    report_.elapsed_ms = since(start);
    return report_;
  }

 private:
  // ---- events ----

  void count_steps() {
    for (const Stage& stage : plan_.stages)
      if (stage.needed) total_ += 1 + static_cast<std::uint32_t>(stage.steps.size());
  }
  BuildEvent event(BuildEvent::Kind kind) const {
    BuildEvent made = current_;
    made.kind = kind;
    made.total = total_;
    return made;
  }
  void tell(const BuildEvent& made) const {
    if (events_) events_(made);
  }
  void note(const std::string& text) const {
    BuildEvent made = event(BuildEvent::Kind::kNote);
    made.text = text;
    tell(made);
  }
  void begin(const Stage& stage, std::size_t stage_number, std::size_t step, std::uint32_t line,
             const std::string& text) {
    current_ = {};
    current_.number = ++number_;
    current_.line = line;
    current_.text = text;
    current_.stage = (stage.name.empty() ? "stage " + std::to_string(stage_number) : stage.name) +
                     " " + std::to_string(step) + "/" + std::to_string(stage.steps.size() + 1);
    started_ = steady_clock::now();
    tell(event(BuildEvent::Kind::kStarted));
  }
  void done(std::uint64_t layer_bytes) const {
    BuildEvent made = event(BuildEvent::Kind::kDone);
    made.elapsed_ms = since(started_);
    made.layer_bytes = layer_bytes;
    tell(made);
  }
  void cached() {
    ++report_.cached;
    tell(event(BuildEvent::Kind::kCached));
  }

  Status check_cancelled() const {
    if (options_.cancelled && options_.cancelled())
      return fail(Error(Code::kCancelled, "the build was cancelled"));
    return {};
  }

  // ---- stages ----

  Status build_stage(std::size_t at) {
    const Stage& stage = plan_.stages[at];
    begin(stage, at, 1, stage.line, stage.text);
    auto begun = begin_stage(at);
    if (!begun.has_value()) {
      if (stage.line == 0) return fail(std::move(begun).error());
      return fail(at_line(plan_.file_name, stage.line, std::move(begun).error()));
    }
    done(0);
    BuiltStage& built = *built_[at];
    StageState state(plan_, std::move(built.config));
    std::size_t number = 1;
    for (const Step& step : stage.steps) {
      TRY(check_cancelled());
      begin(stage, at, ++number, step.line, step.text);
      auto taken = take_step(built, state, step);
      if (!taken.has_value()) {
        if (step.line == 0 || taken.error().code() == Code::kCancelled)
          return fail(std::move(taken).error());
        return fail(at_line(plan_.file_name, step.line, std::move(taken).error()));
      }
      if (report_.failure.has_value()) return {};
    }
    built.config = std::move(state.config());
    return {};
  }

  Status begin_stage(std::size_t at) {
    const Stage& stage = plan_.stages[at];
    auto made = std::make_unique<BuiltStage>();
    made->files = std::make_unique<StageFiles>(store_, options_.unpack);
    switch (stage.base.kind) {
      case StageBase::Kind::kScratch:
        made->config.architecture = std::string(image::host_architecture());
        break;
      case StageBase::Kind::kImage: {
        auto found = content_.find_image(stage.base.image);
        if (!found.has_value())
          return fail(std::move(found).error().with("FROM " + printable(stage.base.image)));
        TRY(load(*found, *made));
        if (!made->config.on_build.empty())
          return fail(Error(Code::kUnimplemented,
                            "the image " + printable(stage.base.image) +
                                " has ONBUILD instructions, which are not supported"));
        break;
      }
      case StageBase::Kind::kStage: {
        BuiltStage& below = *built_[stage.base.stage];
        made->config = below.config;
        made->parent = below.parent;
        made->pending = below.pending;
        // Nobody else needs them: they go on as they are.
        if (is_last_use(stage.base.stage, at)) {
          made->files = std::move(below.files);
        } else {
          TRY(made->files->set(below.files->layers(), below.parent));
        }
        break;
      }
    }
    built_[at] = std::move(made);
    return {};
  }

  // Whether no stage but `user` has anything to do with the files of `stage`.
  bool is_last_use(std::size_t stage, std::size_t user) const {
    for (std::size_t at = stage + 1; at < plan_.stages.size(); ++at) {
      const Stage& other = plan_.stages[at];
      if (!other.needed) continue;
      if (at != user && other.base.kind == StageBase::Kind::kStage && other.base.stage == stage)
        return false;
      for (const Step& step : other.steps)
        if (const auto* copy = std::get_if<CopyStep>(&step.what);
            copy != nullptr && copy->from == CopyStep::From::kStage && copy->stage == stage)
          return false;
    }
    return true;
  }

  // Of the stage that is copied from; null where it is none.
  StageFiles* files_of(const CopyAction& action) const {
    return action.from == CopyStep::From::kStage ? built_[action.stage]->files.get() : nullptr;
  }

  // The configuration and layers of an image of the store.
  Status load(const std::string& image_id, BuiltStage& stage) {
    TRY_ASSIGN(const image::ImageInfo info, store_.info(image_id));
    TRY_ASSIGN(const std::string json, store_.read_blob(image_id));
    TRY_ASSIGN(stage.config, image::parse_image_config(json));
    stage.parent = image_id;
    stage.pending.clear();
    return stage.files->set(info.record.layers, image_id);
  }

  // ---- steps ----

  Status take_step(BuiltStage& built, StageState& state, const Step& step) {
    auto meant = state.apply(step);
    if (!meant.has_value()) return take_failure(std::move(meant).error(), step);
    const Applied applied = std::move(*meant);
    if (step.force) forced_ = true;
    if (std::holds_alternative<std::monostate>(applied.action)) {
      built.pending += hash_of({applied.key});
      add_history(state.config(), applied, state.config().created, true);
      done(0);
      return {};
    }
    std::vector<CopyPart> parts;
    std::string content;
    if (const auto* copy = std::get_if<CopyAction>(&applied.action)) {
      auto found = content_.find(*copy, files_of(*copy), parts);
      if (!found.has_value()) return take_failure(std::move(found).error(), step);
      content = std::move(*found);
    }
    // What a command could reach is part of what it made.
    if (std::holds_alternative<RunAction>(applied.action))
      for (const std::string& host : options_.net)
        content += std::to_string(host.size()) + ":" + host;
    const std::string key = key_of(built, applied, content);
    if (options_.use_cache && !forced_) {
      TRY_ASSIGN(const bool hit, take_cached(key, built, state));
      if (hit) return {};
    }
    if (const auto* copy = std::get_if<CopyAction>(&applied.action)) {
      auto opened = content_.open(*copy, files_of(*copy), parts);
      if (!opened.has_value()) return take_failure(std::move(opened).error(), step);
    }
    TRY_ASSIGN(std::optional<Failed> failed, carry_out(built, state, applied, parts, key));
    if (failed.has_value()) report_failure(std::move(*failed), step);
    return {};
  }

  std::string key_of(const BuiltStage& built, const Applied& applied,
                     const std::string& content) const {
    const std::string_view architecture = image::host_architecture();
    // One field more is another key, whatever it holds.
    if (!options_.cache_owner.empty())
      return hash_of({kKeyVersion, architecture, built.parent, built.pending, applied.key, content,
                      options_.cache_owner});
    return hash_of({kKeyVersion, architecture, built.parent, built.pending, applied.key, content});
  }

  Result<bool> take_cached(const std::string& key, BuiltStage& built, StageState& state) {
    TRY_ASSIGN(const std::optional<std::string> hit, store_.cache_get(key));
    if (!hit.has_value()) return false;
    // A damaged entry is no entry.
    BuiltStage found;
    found.files = std::move(built.files);
    const std::vector<image::LayerRef> before = found.files->layers();
    const Status loaded = load(*hit, found);
    built.files = std::move(found.files);
    if (!loaded.has_value()) {
      TRY(built.files->set(before, built.parent));
      return false;
    }
    state.replace_config(std::move(found.config));
    built.parent = *hit;
    built.pending.clear();
    cached();
    return true;
  }

  static void add_history(image::ImageConfig& config, const Applied& applied,
                          const std::string& created, bool empty) {
    config.history.push_back({.created = created,
                              .created_by = applied.created_by,
                              .comment = "",
                              .empty_layer = empty});
  }

  // What is a step's own fault ends the build as its failure.
  Status take_failure(Error error, const Step& step) {
    switch (error.code()) {
      case Code::kInvalidArgument:
      case Code::kNotFound:
      case Code::kPermissionDenied:
      case Code::kResourceExhausted:
      case Code::kAborted:
      case Code::kAlreadyExists:
      case Code::kUnimplemented:
        report_failure({.reason = error.message(), .outcome = {}, .tail = {}, .unknown_user = {}},
                       step);
        return {};
      default:
        return fail(std::move(error));
    }
  }

  void report_failure(Failed failed, const Step& step) {
    StepFailure failure;
    if (step.line != 0) failure.place = plan_.file_name + ":" + std::to_string(step.line);
    failure.step = step.text;
    failure.reason = std::move(failed.reason);
    failure.outcome = std::move(failed.outcome);
    failure.tail = std::move(failed.tail);
    failure.unknown_user = std::move(failed.unknown_user);
    BuildEvent made = event(BuildEvent::Kind::kFailed);
    made.text = failure.reason;
    made.elapsed_ms = since(started_);
    tell(made);
    report_.failure = std::move(failure);
  }

  Result<std::optional<Failed>> carry_out(BuiltStage& built, StageState& state,
                                          const Applied& applied, std::vector<CopyPart>& parts,
                                          const std::string& key) {
    TRY_ASSIGN(const image::ImageRef root, built.files->open());
    std::optional<image::LayerRef> layer;
    std::optional<Failed> failed;
    if (const auto* directory = std::get_if<DirectoryAction>(&applied.action);
        directory == nullptr || !is_there(root, *directory)) {
      const auto* run = std::get_if<RunAction>(&applied.action);
      TRY_ASSIGN(StepSandbox sandbox,
                 StepSandbox::create(options_, root, run != nullptr ? run->user : ""));
      TRY_ASSIGN(failed, act(sandbox, applied.action, parts));
      if (failed.has_value()) return failed;
      parts.clear();
      TRY_ASSIGN(layer, sandbox.finish(store_));
      if (layer.has_value()) store_.vouch(*layer);
    }
    image::ImageConfig& config = state.config();
    config.created = now_text();
    add_history(config, applied, config.created, !layer.has_value());
    if (layer.has_value()) {
      config.diff_ids.push_back(layer->diff_id);
      built.files->add(*layer);
    }
    const image::ImageContent content = {
        .config = image::encode(config), .layers = built.files->layers(), .manifest = ""};
    TRY_ASSIGN(const image::ImageInfo added, store_.add_record(content));
    built.parent = added.record.id;
    built.pending.clear();
    TRY(store_.cache_put(key, added.record.id));
    done(layer.has_value() ? layer->blob.size : 0);
    return std::optional<Failed>();
  }

  static bool is_there(const image::ImageRef& root, const DirectoryAction& action) {
    if (!action.owner.empty()) return false;  // it may belong to somebody else
    const auto found =
        sys::openat2(root.root.fd.get(), action.path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0,
                     RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
    return found.has_value();
  }

  Result<std::optional<Failed>> act(StepSandbox& sandbox, const Action& action,
                                    const std::vector<CopyPart>& parts) {
    if (const auto* run = std::get_if<RunAction>(&action)) {
      TRY_ASSIGN(auto ended, sandbox.run(
                                 *run,
                                 [&](OutputChannel channel, std::string_view bytes) {
                                   BuildEvent made = event(BuildEvent::Kind::kOutput);
                                   made.channel = channel;
                                   made.bytes = bytes;
                                   tell(made);
                                 },
                                 [&](const std::string& text) { note(text); }));
      if (!ended.has_value()) return std::nullopt;
      return Failed{.reason = std::move(ended->reason),
                    .outcome = std::move(ended->outcome),
                    .tail = std::move(ended->tail),
                    .unknown_user = std::move(ended->unknown_user)};
    }
    box::FileClient files = sandbox.files();
    const auto work = [&]() -> Status {
      if (const auto* directory = std::get_if<DirectoryAction>(&action))
        return make_directory(sandbox, files, *directory);
      return copy(sandbox, files, std::get<CopyAction>(action), parts);
    };
    auto worked = work();
    if (worked.has_value()) return std::nullopt;
    if (worked.error().code() == Code::kUnavailable || worked.error().code() == Code::kInternal ||
        worked.error().code() == Code::kDataLoss)
      return fail(std::move(worked).error());
    return Failed{
        .reason = worked.error().message(), .outcome = {}, .tail = {}, .unknown_user = {}};
  }

  static Status make_directory(StepSandbox& sandbox, box::FileClient& files,
                               const DirectoryAction& action) {
    Owner owner;
    if (!action.owner.empty() && sandbox.has_owners()) {
      TRY_ASSIGN(owner, find_owner(files, action.owner));
    }
    TRY(ensure_directory(files, action.path, owner));
    if (owner == Owner{}) return {};
    TRY(files.change_owner(action.path, owner.uid, owner.gid));
    return files.settle();
  }

  // ---- COPY ----

  static Status copy(StepSandbox& sandbox, box::FileClient& files, const CopyAction& action,
                     const std::vector<CopyPart>& parts) {
    CopyPlace place;
    place.destination = action.destination;
    place.into_directory = action.into_directory;
    place.mode = action.mode;
    if (!action.owner.empty() && sandbox.has_owners()) {
      TRY_ASSIGN(place.owner, find_owner(files, action.owner));
    }
    if (!sandbox.has_owners()) place.owner = Owner{};
    std::size_t trees = action.texts.size();
    for (const CopyPart& part : parts) trees += part.archive.valid() ? 1 : part.trees.size();
    // Wildcards may have found several. Templates have no other way to name a folder.
    if (action.from == CopyStep::From::kArchive && trees > 1) place.into_directory = true;
    if (trees > 1 && !place.into_directory)
      return fail(Error::invalid("the sources are " + std::to_string(trees) +
                                 " files; the destination must be a directory then, and end with "
                                 "'/'"));
    Copier copier(files, place);
    for (const CopyPart& part : parts) {
      if (!part.archive.valid()) {
        TRY(copier.copy(*part.source, part.trees));
        continue;
      }
      CopyPlace merged = place;
      merged.into_directory = true;
      Copier merger(files, merged);
      TRY(merger.copy(*part.source, part.trees));
      TRY(merger.finish());
    }
    for (const auto& [name, text] : action.texts) TRY(copier.write(name, text, trees > 1));
    return copier.finish();
  }

  // ---- the end ----

  Status conclude() {
    TRY(check_cancelled());
    current_ = {};
    tell(event(BuildEvent::Kind::kFinishing));
    BuiltStage& built = *built_[plan_.target];
    image::ImageConfig& config = built.config;
    for (const auto& [name, value] : plan_.labels) config.labels[name] = value;
    for (const auto& [name, value] : options_.labels) config.labels[name] = value;
    if (config.created.empty()) config.created = now_text();
    const image::ImageContent content = {
        .config = image::encode(config), .layers = built.files->layers(), .manifest = ""};
    TRY_ASSIGN(const image::ImageInfo added, built.files->finish(content));
    report_.image_id = added.record.id;
    for (const image::Reference& name : options_.names)
      TRY(store_.set_reference(name, report_.image_id));
    built_.clear();
    return {};
  }

  image::Store& store_;
  const BuildPlan& plan_;
  const BuildOptions& options_;
  const Events& events_;
  CopyContent content_;
  std::vector<std::unique_ptr<BuiltStage>> built_;
  BuildReport report_;
  BuildEvent current_;
  steady_clock::time_point started_;
  std::uint32_t number_ = 0, total_ = 0;
  bool forced_ = false;
};

}  // namespace

policy::Limits default_limits() {
  policy::Limits limits;
  limits.memory = 2ull << 30;
  limits.cpu_milli = std::nullopt;
  limits.pids = 2048;
  limits.disk = 8ull << 30;
  limits.inodes = 1'000'000;
  limits.open_files = 4096;
  limits.output = std::nullopt;
  limits.timeout_ms = 30ull * 60 * 1000;
  limits.cpu_time_ms = std::nullopt;
  return limits;
}

std::string StepFailure::text() const {
  return (place.empty() ? "" : place + ": ") + step + ": " + reason;
}

Result<BuildReport> build(image::Store& store, const BuildPlan& plan, const BuildOptions& options,
                          const Events& events) {
  auto built = Builder(store, plan, options, events).run();
  // What a failed build kept is reachable from the cache alone.
  if (auto swept = store.sweep(); built.has_value() && !swept.has_value())
    return fail(std::move(swept).error());
  return built;
}

}  // namespace caisson::build
