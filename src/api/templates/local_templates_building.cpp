#include <algorithm>
#include <set>
#include <utility>

#include "api/e2b/process_state.h"
#include "api/templates/local_templates_shared.h"
#include "base/secret.h"
#include "db/teams.h"
#include "image/reference.h"
#include "policy/complain.h"

namespace caisson::api {
namespace {

constexpr std::uint64_t kMostUnfinished = 100;
// How long a build counts that nobody has ordered.
constexpr std::chrono::milliseconds kOrderTime = std::chrono::hours(1);
constexpr std::string_view kLost = "what became of this build could not be written down";

// "1500" milli-processors are two.
std::uint32_t whole_cpus(std::uint64_t cpu_milli) {
  return static_cast<std::uint32_t>((cpu_milli + 999) / 1000);
}

WallTime time_of(std::int64_t ms) {
  return WallTime(std::chrono::milliseconds(ms));
}

// As E2B's own label of a process, so that clients see what it is.
std::string label_of(const std::string& command) {
  e2b::ProcessLabel label;
  json::Value arguments = json::Value::array();
  arguments.push("-l").push("-c").push(command);
  label.config.set("cmd", "/bin/bash").set("args", std::move(arguments));
  return e2b::encode_label(label);
}

// Blocks: takes our names of images away where `keeps` does not want them.
Status remove_names(maker::Host& host, const std::vector<maker::NamedImage>& all,
                    const std::function<bool(const maker::NamedImage& one)>& keeps) {
  for (const maker::NamedImage& one : all)
    if (!keeps(one)) TRY(host.drop_template_image(one.name));
  return {};
}

// What it starts is tried in a sandbox that is no more than one which the team could have.
Status allow_trial(const fleet::Quota& quota, fleet::Recipe recipe, BuildTask& task) {
  TRY_ASSIGN(task.recipe, fleet::recipe_within(quota, std::move(recipe), fleet::Limits::kUsual));
  if (quota.privileges == policy::Privileges::kNone)
    task.recipe.privileges = policy::Privileges::kNone;
  return {};
}

// The lower of what somebody asks for and may have; nullopt is unlimited.
std::uint64_t at_most(std::uint64_t size, policy::LimitValue most) {
  return most.has_value() ? std::min(size, *most) : size;
}

}  // namespace

TemplateView view_of(const db::Template& found, const db::Build* newest, std::size_t builds) {
  TemplateView view{.id = found.id, .names = found.names, .space = found.space};
  view.access = found.is_public ? TemplateView::Access::kPublic : TemplateView::Access::kTeam;
  view.created = time_of(found.created_ms);
  view.updated = time_of(found.updated_ms);
  view.builds = static_cast<std::uint32_t>(builds);
  view.status = TemplateView::Status::kWaiting;
  if (newest == nullptr) return view;
  view.build_id = newest->id;
  view.status = static_cast<TemplateView::Status>(newest->status);
  view.cpus = whole_cpus(newest->size.cpu_milli);
  view.memory_mib = newest->size.memory >> 20;
  view.disk_mib = newest->size.disk >> 20;
  return view;
}

fleet::StartCommand start_of(const db::Build& build) {
  if (build.start_command.empty()) return {};
  return {.command = build.start_command,
          .ready = build.ready_command,
          .label = label_of(build.start_command)};
}

io::Async<Result<fleet::Quota>> LocalTemplates::quota_of(std::string team) {
  if (!parts_.quota) co_return fleet::quota_of(parts_.config, {});
  co_return co_await parts_.quota(std::move(team));
}

Result<db::BuildSize> LocalTemplates::size_of(const NewTemplate& wanted,
                                              const fleet::Quota& quota) const {
  const policy::ServedLimits& usual = parts_.config.defaults;
  // What nobody asked for is what the team may have of it.
  db::BuildSize size{.cpu_milli = at_most(usual.cpu_milli.value_or(1000), quota.cpu_milli),
                     .memory = at_most(usual.memory.value_or(512ull << 20), quota.memory_bytes),
                     .disk = 0};
  if (wanted.cpus.has_value()) size.cpu_milli = std::uint64_t{*wanted.cpus} * 1000;
  if (wanted.memory_mib.has_value()) size.memory = *wanted.memory_mib << 20;
  if (at_most(size.cpu_milli, quota.cpu_milli) != size.cpu_milli)
    return fail(policy::wrong("cpuCount", std::to_string(size.cpu_milli / 1000),
                              std::to_string(*quota.cpu_milli / 1000) + " at most"));
  if (at_most(size.memory, quota.memory_bytes) != size.memory)
    return fail(policy::wrong("memoryMB", std::to_string(size.memory >> 20),
                              std::to_string(*quota.memory_bytes >> 20) + " at most"));
  return size;
}

io::Async<Result<NewBuild>> LocalTemplates::create(std::string team, NewTemplate wanted) {
  CO_TRY_ASSIGN(const db::TemplateReference reference, db::parse_template_reference(wanted.name));
  CO_TRY_ASSIGN(const fleet::Quota quota, co_await quota_of(team));
  CO_TRY_ASSIGN(const db::BuildSize size, size_of(wanted, quota));
  std::vector<std::string> tags = std::move(wanted.tags);
  if (wanted.name.contains(':')) tags.push_back(reference.tag);
  if (tags.empty()) tags.emplace_back(db::kDefaultTag);
  std::ranges::sort(tags);
  tags.erase(std::ranges::unique(tags).begin(), tags.end());
  auto add = [team, reference, tags, size,
              most = parts_.config.max_templates](db::Database& database) -> Result<NewBuild> {
    db::Templates templates(database);
    db::Builds builds(database);
    TRY_ASSIGN(const std::uint64_t unfinished,
               builds.count_unfinished(team, now_ms() - kOrderTime.count()));
    if (unfinished >= kMostUnfinished)
      return fail(Error::exhausted("you have " + std::to_string(unfinished) +
                                   " builds that are not finished, as many as a team may have"));
    for (const std::string& tag : tags) TRY(db::check_template_tag(tag));
    auto found = templates.find(team, reference);
    if (!found.has_value()) {
      if (found.error().code() != Code::kNotFound) return fail(std::move(found).error());
      if (!reference.space.empty()) {
        TRY_ASSIGN(const db::Team owner, db::Teams(database).find_id(team));
        if (owner.slug != reference.space)
          return fail(Error(Code::kPermissionDenied,
                            "the namespace " + policy::quote(reference.space) + " is not yours"));
      }
      TRY_ASSIGN(const std::uint64_t present, templates.count_built(team));
      if (present >= most)
        return fail(Error::exhausted("you have " + std::to_string(present) +
                                     " templates, as many as a team may have (max_templates)"));
      found = templates.ensure(team, reference.name, now_ms());
      if (!found.has_value()) return fail(std::move(found).error());
    }
    if (found->source_sandbox.has_value())
      return fail(
          Error(Code::kAlreadyExists, "there is a snapshot " + policy::quote(reference.name)));
    TRY_ASSIGN(const db::Build build, builds.add(team, found->id, tags, size, now_ms()));
    return NewBuild{.view = view_of(*found, &build, 1), .tags = tags};
  };
  co_return co_await parts_.database->with(std::move(add));
}

io::Async<Result<LocalTemplates::Base>> LocalTemplates::base_of(std::string team,
                                                                const BuildOrder& order) {
  if (order.from_template.empty()) {
    CO_TRY(image::parse_reference(order.from_image));
    if (!is_everybodys(order.from_image) || order.from_image.starts_with(kImageId))
      co_return fail(policy::wrong("fromImage", policy::quote(order.from_image),
                                   "an image; templates are named by fromTemplate"));
    co_return Base{.image = order.from_image, .called = ""};
  }
  CO_TRY_ASSIGN(const fleet::Template found, co_await to_make(team, order.from_template));
  Base base{.image = found.recipe.image, .called = order.from_template};
  if (base.image.starts_with(kImageId)) base.provision = build::Provision::kNo;
  co_return base;
}

io::Async<Status> LocalTemplates::find_archives(BuildTask& task) {
  std::set<std::string> hashes;
  for (const build::TemplateStep& step : task.job.spec.steps)
    if (!step.files_hash.empty() && step.type == "COPY") hashes.insert(step.files_hash);
  task.job.archives.assign(hashes.begin(), hashes.end());
  const Uploads::Owner owner{.team = task.team, .id = task.template_id};
  auto look = [uploads = uploads_, owner,
               all = task.job.archives]() -> Result<std::vector<std::string>> {
    std::vector<std::string> paths;
    for (const std::string& hash : all) {
      auto path = uploads.find(owner, hash);
      if (!path.has_value())
        return fail(Error::invalid("steps: the files " + hash + " were not uploaded"));
      paths.push_back(std::move(*path));
    }
    return paths;
  };
  CO_TRY_ASSIGN(task.archive_paths, co_await parts_.loop.in_pool(std::move(look)));
  co_return Status();
}

io::Async<Status> LocalTemplates::start_build(std::string team, std::string id, std::string build,
                                              BuildOrder order) {
  CO_TRY_ASSIGN(const Base base, co_await base_of(team, order));
  BuildTask task{.team = team, .template_id = id, .build_id = build};
  task.job.spec.image = base.image;
  task.job.spec.called = base.called;
  task.job.spec.provision = base.provision;
  task.job.spec.steps = std::move(order.steps);
  task.job.spec.start_command = order.start_command;
  task.job.spec.ready_command = order.ready_command;
  task.job.spec.force = order.force;
  // Mistakes are told now rather than by the log.
  CO_TRY(build::plan_template(task.job.spec));
  // Whose it is comes before what was sent for it.
  auto owned = [team, id, build](db::Database& database) -> Status {
    TRY(db::Builds(database).find(team, id, build));
    return {};
  };
  CO_TRY(co_await parts_.database->with(std::move(owned)));
  CO_TRY(co_await find_archives(task));
  auto start = [team, id, build, order](db::Database& database) -> Result<db::Build> {
    db::Builds builds(database);
    TRY_ASSIGN(db::Build found, builds.find(team, id, build));
    TRY(builds.start(build, order.start_command, order.ready_command));
    found.start_command = order.start_command;
    found.ready_command = order.ready_command;
    return found;
  };
  CO_TRY_ASSIGN(const fleet::Quota quota, co_await quota_of(team));
  CO_TRY(queue_.check(team));
  // From here on the database may say that it is built, though the queue has it not yet.
  const Starting starting(starting_, build);
  CO_TRY_ASSIGN(db::Build found, co_await parts_.database->with(std::move(start)));
  task.job.name = std::string(maker::kTemplateNames) + id + ":" + build;
  task.job.team = team;
  // The team may have less by now than when it made the build.
  task.job.cpu_milli = at_most(found.size.cpu_milli, quota.cpu_milli);
  task.job.memory = at_most(found.size.memory, quota.memory_bytes);
  task.job.disk = quota.disk_bytes;
  task.job.login = std::move(order.login);
  task.start = start_of(found);
  Status added = allow_trial(quota, recipe_of(found), task);
  if (added.has_value()) added = queue_.add(task);
  if (!added.has_value()) co_await failed(std::move(task), "base", added.error().message());
  co_return Status();
}

io::Async<void> LocalTemplates::log(std::string build_id, std::vector<db::LogEntry> entries) {
  auto write = [build_id, entries = std::move(entries)](db::Database& database) -> Status {
    return db::Builds(database).append_logs(build_id, entries);
  };
  // A log that cannot be written ends no build.
  [[maybe_unused]] const Status written = co_await parts_.database->with(std::move(write));
}

// A build is whole where its image is in the store and its row says so; whatever fails on the way
// leaves that, or a failed one without an image:
//
// 1. the builder has named the image; a server that dies now finds a build that nobody works on;
// 2. one transaction makes the row ready and points its tags to it;
// 3. the images that no tag means any more lose their names.
//
// Where the second says that it failed, the row says whether it did. Where that cannot be known
// either, image and row stay as they are, for sweep().
io::Async<void> LocalTemplates::finished(BuildTask task, std::string image) {
  auto write = [build = task.build_id, image](db::Database& database) {
    return db::Builds(database).finish(build, image, now_ms());
  };
  const Status ready = co_await parts_.database->with(std::move(write));
  if (!ready.has_value()) {
    co_await fail_unless_ready(std::move(task), "finalize",
                               std::string(kLost) + ": " + ready.error().message());
    co_return;
  }
  auto drop = [team = task.team, id = task.template_id](db::Database& database) {
    return db::Templates(database).drop_untagged(team, id);
  };
  auto unused = co_await parts_.database->with(std::move(drop));
  if (unused.has_value()) co_await forget_images(std::move(*unused));
  note_end();
}

io::Async<void> LocalTemplates::failed(BuildTask task, std::string step, std::string reason) {
  co_await fail_unless_ready(std::move(task), std::move(step), std::move(reason));
}

io::Async<void> LocalTemplates::fail_unless_ready(BuildTask task, std::string step,
                                                  std::string reason) {
  auto write = [build = task.build_id, step,
                reason](db::Database& database) -> Result<db::BuildStatus> {
    db::Builds builds(database);
    TRY_ASSIGN(const db::BuildStatus status, builds.status(build));
    if (status == db::BuildStatus::kReady || status == db::BuildStatus::kError) return status;
    TRY(builds.set_failed(build, step, reason, now_ms()));
    return db::BuildStatus::kError;
  };
  const auto status = co_await parts_.database->with(std::move(write));
  // Of a template that was removed meanwhile nobody will ask for the image.
  const bool is_gone = !status.has_value() && status.error().code() == Code::kNotFound;
  if (is_gone || (status.has_value() && *status == db::BuildStatus::kError))
    co_await forget_name(std::move(task.job.name));
  note_end();
}

void LocalTemplates::note_end() {
  has_ended_ = true;
  ended_.notify();
}

io::Async<void> LocalTemplates::forget_images(std::vector<std::string> images) {
  if (images.empty()) co_return;
  auto is_meant = [images = std::move(images)](const maker::NamedImage& one) {
    return std::ranges::find(images, one.image) != images.end();
  };
  // What stays is swept.
  [[maybe_unused]] const Status removed = co_await forget_unneeded(std::move(is_meant));
}

io::Async<void> LocalTemplates::forget_name(std::string name) {
  auto forget = [&host = parts_.host, name = std::move(name)] {
    return host.drop_template_image(name);
  };
  [[maybe_unused]] const Status removed = co_await parts_.loop.in_pool(std::move(forget));
}

// ---- keeping house ------------------------------------------------------------------------------

io::Async<Status> LocalTemplates::settle() {
  auto read = [](db::Database& database) { return db::Builds(database).building(); };
  CO_TRY_ASSIGN(std::vector<std::string> lost, co_await parts_.database->with(std::move(read)));
  const std::vector<std::string> going_on = queue_.builds();
  std::erase_if(lost, [&](const std::string& id) {
    return std::ranges::binary_search(going_on, id) || starting_->contains(id);
  });
  auto settle = [lost = std::move(lost)](db::Database& database) -> Status {
    db::Builds builds(database);
    for (const std::string& id : lost) {
      const Status set = builds.set_failed(id, "finalize", kLost, now_ms());
      // It has ended since.
      const bool ended = !set.has_value() && (set.error().code() == Code::kFailedPrecondition ||
                                              set.error().code() == Code::kNotFound);
      if (!ended) TRY(set);
    }
    return db::Templates(database).drop_untagged_of_any_team();
  };
  co_return co_await parts_.database->with(std::move(settle));
}

io::Async<Status> LocalTemplates::forget_unused_images() {
  auto all = [](const maker::NamedImage&) { return true; };
  co_return co_await forget_unneeded(std::move(all));
}

io::Async<Status> LocalTemplates::forget_unneeded(
    std::function<bool(const maker::NamedImage& one)> is_meant) {
  // The names first: what comes to be needed afterwards is not among them, and of those that go on
  // now the database knows only later. Two builds may make the same image, so that what nothing
  // needed when it was chosen may be needed again.
  auto list = [&host = parts_.host] { return host.template_images(); };
  CO_TRY_ASSIGN(std::vector<maker::NamedImage> named,
                co_await parts_.loop.in_pool(std::move(list)));
  std::erase_if(named, [&](const maker::NamedImage& one) { return !is_meant(one); });
  if (named.empty()) co_return Status();
  const std::vector<std::string> under_way = queue_.names();
  auto read = [](db::Database& database) { return db::Templates(database).images_of_any_team(); };
  CO_TRY_ASSIGN(std::vector<std::string> known, co_await parts_.database->with(std::move(read)));
  auto remove = [&host = parts_.host, named = std::move(named), under_way,
                 known = std::move(known)] {
    return remove_names(host, named, [&](const maker::NamedImage& one) {
      return std::ranges::binary_search(known, one.image) ||
             std::ranges::find(under_way, one.name) != under_way.end();
    });
  };
  co_return co_await parts_.loop.in_pool(std::move(remove));
}

io::Async<Status> LocalTemplates::prune() {
  // Each is a transaction of its own, so that whoever waits for the database gets in between.
  constexpr std::uint32_t kBuilds = 100, kEntries = 500;
  constexpr int kMostRounds = 20;
  const policy::BuildConfig& config = parts_.config.builds;
  db::BuildRetention retention{.per_template = config.kept, .kept_ms = {}};
  if (config.kept_ms.has_value()) retention.kept_ms = static_cast<std::int64_t>(*config.kept_ms);
  for (int round = 0; round < kMostRounds; ++round) {
    auto look = [retention](db::Database& database) {
      return db::Builds(database).outdated(retention, now_ms(), kBuilds);
    };
    CO_TRY_ASSIGN(const std::vector<db::OutdatedBuild> outdated,
                  co_await parts_.database->with(std::move(look)));
    for (const db::OutdatedBuild& one : outdated) {
      for (bool done = false; !done;) {
        auto remove = [one](db::Database& database) {
          return db::Builds(database).remove_some(one, kEntries);
        };
        CO_TRY_ASSIGN(done, co_await parts_.database->with(std::move(remove)));
      }
    }
    if (outdated.size() < kBuilds) break;
  }
  co_return Status();
}

io::Async<Status> LocalTemplates::trim_cache() {
  const policy::BuildConfig& config = parts_.config.builds;
  maker::CacheBound bound{.bytes = config.cache, .seconds = {}};
  if (config.cache_ms.has_value()) bound.seconds = *config.cache_ms / 1000;
  auto trim = [&host = parts_.host, bound] { return host.trim_cache(bound); };
  co_return co_await parts_.loop.in_pool(std::move(trim));
}

io::Async<Status> LocalTemplates::sweep() {
  // One that fails keeps the others from nothing.
  const Status settled = co_await settle();
  const Status forgotten = co_await forget_unused_images();
  const Status pruned = co_await prune();
  const Status uploads = co_await forget_lost_uploads();
  const Status trimmed = co_await trim_cache();
  CO_TRY(settled);
  CO_TRY(forgotten);
  CO_TRY(pruned);
  CO_TRY(uploads);
  co_return trimmed;
}

io::Async<void> LocalTemplates::keep_house(std::function<void(const Error&)> report) {
  constexpr std::chrono::minutes kEvery{5};
  // Builds that end together are swept after together.
  constexpr std::chrono::seconds kPause{1};
  for (;;) {
    has_ended_ = false;
    const Status swept = co_await sweep();
    if (!swept.has_value()) report(swept.error());
    if (!has_ended_) std::ignore = co_await ended_.wait_until(io::Clock::now() + kEvery);
    co_await io::Loop::sleep(kPause);
  }
}

}  // namespace caisson::api
