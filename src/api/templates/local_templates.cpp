#include "api/templates/local_templates.h"

#include <algorithm>
#include <set>
#include <utility>

#include "api/e2b/process_state.h"
#include "base/secret.h"
#include "base/sha256.h"
#include "db/teams.h"
#include "image/reference.h"
#include "policy/complain.h"

namespace caisson::api {
namespace {

constexpr std::uint32_t kMostListed = 1000;
constexpr std::uint32_t kMostBuilds = 100;  // that details() shows
constexpr std::uint64_t kMostUnfinished = 100;
constexpr std::size_t kMostUploads = 16;
constexpr std::chrono::seconds kUploadTime = std::chrono::hours(1);
// How long a build counts that nobody has ordered.
constexpr std::chrono::milliseconds kOrderTime = std::chrono::hours(1);
constexpr std::string_view kImageId = "sha256:";
constexpr std::uint64_t kUploadsKept = 16;  // as many of the longest together
constexpr std::string_view kInterrupted =
    "the server ended or was started again while this was being built";

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

WallTime time_of(std::int64_t ms) {
  return WallTime(std::chrono::milliseconds(ms));
}

// "1500" milli-processors are two.
std::uint32_t whole_cpus(std::uint64_t cpu_milli) {
  return static_cast<std::uint32_t>((cpu_milli + 999) / 1000);
}

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

Result<TemplateView> view_with_builds(db::Database& database, const db::Template& found) {
  TRY_ASSIGN(const auto builds, db::Builds(database).list(found.team_id, found.id, kMostBuilds));
  return view_of(found, builds.empty() ? nullptr : builds.data(), builds.size());
}

Error not_yours(std::string_view name) {
  return Error(Code::kPermissionDenied,
               "template " + policy::quote(name) + " is the server's; it is changed on its host");
}

// Blocks: takes our names of images away where `keeps` does not want them.
Status remove_names(maker::Host& host,
                    const std::function<bool(const maker::NamedImage& one)>& keeps) {
  TRY_ASSIGN(const std::vector<maker::NamedImage> all, host.template_images());
  for (const maker::NamedImage& one : all)
    if (!keeps(one)) TRY(host.drop_template_image(one.name));
  return {};
}

class CountedUpload final : public Upload {
 public:
  CountedUpload(std::unique_ptr<Upload> inner, std::shared_ptr<std::atomic<std::size_t>> count)
      : inner_(std::move(inner)), count_(std::move(count)) {}
  ~CountedUpload() override { --*count_; }
  Status append(std::string_view bytes) override { return inner_->append(bytes); }
  Status keep() override { return inner_->keep(); }

 private:
  std::unique_ptr<Upload> inner_;
  std::shared_ptr<std::atomic<std::size_t>> count_;
};

BuildQueue::Options queue_options(const LocalTemplates::Parts& parts) {
  BuildQueue::Options options;
  options.at_once = parts.config.builds.at_once;
  if (parts.config.builds.time_ms.has_value())
    options.time = std::chrono::milliseconds(*parts.config.builds.time_ms);
  return options;
}

Uploads::Limits upload_limits(const policy::ServerConfig& config) {
  const std::uint64_t most = config.builds.upload.value_or(1ull << 50);
  return {.file = most, .total = most * kUploadsKept};
}

// As E2B's own label of a process, so that clients see what it is.
std::string label_of(const std::string& command) {
  e2b::ProcessLabel label;
  json::Value arguments = json::Value::array();
  arguments.push("-l").push("-c").push(command);
  label.config.set("cmd", "/bin/bash").set("args", std::move(arguments));
  return e2b::encode_label(label);
}

fleet::StartCommand start_of(const db::Build& build) {
  if (build.start_command.empty()) return {};
  return {.command = build.start_command,
          .ready = build.ready_command,
          .label = label_of(build.start_command)};
}

}  // namespace

LocalTemplates::LocalTemplates(Parts parts)
    : parts_(std::move(parts)),
      catalogue_(parts_.loop, parts_.host, parts_.config),
      uploads_(parts_.uploads, upload_limits(parts_.config)),
      queue_(parts_.loop, parts_.host, queue_options(parts_), *this) {}

io::Async<Status> LocalTemplates::prepare() {
  auto read = [](db::Database& database) -> Result<std::vector<std::string>> {
    TRY(db::Builds(database).fail_unfinished(kInterrupted, now_ms()));
    return db::Templates(database).images_of_any_team();
  };
  CO_TRY_ASSIGN(std::vector<std::string> known, co_await parts_.database->with(std::move(read)));
  auto clean = [&host = parts_.host, uploads = uploads_, known = std::move(known)]() -> Status {
    TRY(uploads.prepare());
    return remove_names(host, [&](const maker::NamedImage& one) {
      return std::ranges::binary_search(known, one.image);
    });
  };
  co_return co_await parts_.loop.in_pool(std::move(clean));
}

io::Async<void> LocalTemplates::close() {
  co_await queue_.close(std::string(kInterrupted));
}

// ---- finding ------------------------------------------------------------------------------------

fleet::Recipe LocalTemplates::recipe_of(const db::Build& build) const {
  const policy::ServedLimits& limits = parts_.config.defaults;
  fleet::Recipe recipe{.image = build.image,
                       .cpu_milli = build.size.cpu_milli,
                       .memory_bytes = build.size.memory,
                       .disk_bytes = limits.disk,
                       .pids = limits.pids};
  if (build.size.disk != 0) recipe.disk_bytes = build.size.disk;
  return recipe;
}

io::Async<Result<fleet::Template>> LocalTemplates::to_make(std::string team, std::string name) {
  const auto reference = db::parse_template_reference(name);
  if (reference.has_value()) {
    auto look = [team, wanted = *reference](
                    db::Database& database) -> Result<std::optional<db::ResolvedTemplate>> {
      db::Templates templates(database);
      // One that is there and has no such tag is an error; one that is not may be the operator's.
      const auto found = templates.find_usable(team, wanted);
      if (found.has_value() && found->source_sandbox.has_value())
        return fail(Error::not_found("template " + policy::quote(wanted.name) +
                                     " not found; there is a snapshot of that name"));
      if (!found.has_value()) {
        const Code code = found.error().code();
        if (code == Code::kNotFound || code == Code::kPermissionDenied) return std::nullopt;
        return fail(found.error());
      }
      TRY_ASSIGN(db::ResolvedTemplate resolved, templates.resolve(team, wanted));
      return std::optional(std::move(resolved));
    };
    CO_TRY_ASSIGN(const auto resolved, co_await parts_.database->with(std::move(look)));
    if (resolved.has_value()) {
      const db::Template& found = resolved->found;
      co_return fleet::Template{.id = found.id,
                                .alias = found.names.empty() ? "" : found.names.front(),
                                .recipe = recipe_of(resolved->build),
                                .env = {},
                                .start = start_of(resolved->build)};
    }
  }
  co_return co_await catalogue_.to_make(std::move(name));
}

io::Async<Result<TemplateView>> LocalTemplates::find(std::string team, std::string name) {
  const auto reference = db::parse_template_reference(name);
  if (!reference.has_value()) co_return co_await catalogue_.find(std::move(name));
  auto look = [team, wanted = *reference](db::Database& database) -> Result<TemplateView> {
    TRY_ASSIGN(const db::Template found, db::Templates(database).find_usable(team, wanted));
    return view_with_builds(database, found);
  };
  auto found = co_await parts_.database->with(std::move(look));
  if (found.has_value() || found.error().code() != Code::kNotFound) co_return found;
  co_return co_await catalogue_.find(std::move(name));
}

io::Async<Result<std::vector<TemplateView>>> LocalTemplates::list(std::string team) {
  auto look = [team](db::Database& database) -> Result<std::vector<TemplateView>> {
    TRY_ASSIGN(const db::TemplatePage page,
               db::Templates(database).list(team, {.limit = kMostListed}));
    std::vector<TemplateView> views;
    for (const db::Template& found : page.rows) {
      TRY_ASSIGN(TemplateView view, view_with_builds(database, found));
      views.push_back(std::move(view));
    }
    return views;
  };
  CO_TRY_ASSIGN(std::vector<TemplateView> views, co_await parts_.database->with(std::move(look)));
  CO_TRY_ASSIGN(const std::vector<TemplateView> others, co_await catalogue_.list());
  views.insert(views.end(), others.begin(), others.end());
  co_return views;
}

io::Async<Result<db::Template>> LocalTemplates::own(std::string team, std::string name) {
  CO_TRY_ASSIGN(const db::TemplateReference reference, db::parse_template_reference(name));
  auto look = [team, reference](db::Database& database) -> Result<db::Template> {
    db::Templates templates(database);
    TRY_ASSIGN(db::Template found, templates.find_usable(team, reference));
    if (found.team_id == team) return found;
    return fail(Error(Code::kPermissionDenied,
                      "template " + policy::quote(reference.name) + " is another team's"));
  };
  auto found = co_await parts_.database->with(std::move(look));
  if (found.has_value() || found.error().code() != Code::kNotFound) co_return found;
  const auto offered = co_await catalogue_.find(name);
  if (offered.has_value()) co_return fail(not_yours(reference.name));
  co_return found;
}

io::Async<Result<Templates::Details>> LocalTemplates::details(std::string team, std::string name) {
  CO_TRY_ASSIGN(const db::Template found, co_await own(team, name));
  auto look = [found](db::Database& database) -> Result<Details> {
    Details details;
    TRY_ASSIGN(details.builds, db::Builds(database).list(found.team_id, found.id, kMostBuilds));
    details.view = view_of(found, details.builds.empty() ? nullptr : details.builds.data(),
                           details.builds.size());
    return details;
  };
  co_return co_await parts_.database->with(std::move(look));
}

// ---- building -----------------------------------------------------------------------------------

Result<db::BuildSize> LocalTemplates::size_of(const NewTemplate& wanted) const {
  const policy::ServedLimits& usual = parts_.config.defaults;
  const policy::ServedLimits& most = parts_.config.maxima;
  db::BuildSize size{.cpu_milli = usual.cpu_milli.value_or(1000),
                     .memory = usual.memory.value_or(512ull << 20),
                     .disk = 0};
  if (wanted.cpus.has_value()) size.cpu_milli = std::uint64_t{*wanted.cpus} * 1000;
  if (wanted.memory_mib.has_value()) size.memory = *wanted.memory_mib << 20;
  if (most.cpu_milli.has_value() && size.cpu_milli > *most.cpu_milli)
    return fail(policy::wrong("cpuCount", std::to_string(size.cpu_milli / 1000),
                              std::to_string(*most.cpu_milli / 1000) + " at most"));
  if (most.memory.has_value() && size.memory > *most.memory)
    return fail(policy::wrong("memoryMB", std::to_string(size.memory >> 20),
                              std::to_string(*most.memory >> 20) + " at most"));
  return size;
}

io::Async<Result<NewBuild>> LocalTemplates::create(std::string team, NewTemplate wanted) {
  CO_TRY_ASSIGN(const db::TemplateReference reference, db::parse_template_reference(wanted.name));
  CO_TRY_ASSIGN(const db::BuildSize size, size_of(wanted));
  std::vector<std::string> tags = std::move(wanted.tags);
  if (wanted.name.contains(':')) tags.push_back(reference.tag);
  if (tags.empty()) tags.emplace_back(db::kDefaultTag);
  std::ranges::sort(tags);
  tags.erase(std::ranges::unique(tags).begin(), tags.end());
  auto add = [team, reference, tags, size](db::Database& database) -> Result<NewBuild> {
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
  auto look = [uploads = uploads_, id = task.template_id,
               all = task.job.archives]() -> Result<std::vector<std::string>> {
    std::vector<std::string> paths;
    for (const std::string& hash : all) {
      auto path = uploads.find(id, hash);
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
  if (queue_.full())
    co_return fail(Error::exhausted("as many builds wait as this server takes; try again later"));
  CO_TRY_ASSIGN(db::Build found, co_await parts_.database->with(std::move(start)));
  task.job.name = std::string(maker::kTemplateNames) + id + ":" + build;
  task.job.cpu_milli = found.size.cpu_milli;
  task.job.memory = found.size.memory;
  task.job.login = std::move(order.login);
  task.recipe = recipe_of(found);
  task.start = start_of(found);
  if (queue_.add(task)) co_return Status();
  co_await failed(std::move(task), "base", "as many builds wait as this server takes");
  co_return Status();
}

io::Async<Result<BuildProgress>> LocalTemplates::progress(std::string team, std::string id,
                                                          std::string build, LogQuery query) {
  auto look = [team, id, build, query](db::Database& database) -> Result<BuildProgress> {
    db::Builds builds(database);
    BuildProgress progress;
    TRY_ASSIGN(progress.build, builds.find(team, id, build));
    TRY_ASSIGN(progress.entries, builds.logs(build, query.offset, query.limit, query.least));
    return progress;
  };
  co_return co_await parts_.database->with(std::move(look));
}

io::Async<Result<std::vector<db::LogEntry>>> LocalTemplates::logs(std::string team, std::string id,
                                                                  std::string build,
                                                                  db::LogWindow window) {
  auto look = [team, id, build,
               window](db::Database& database) -> Result<std::vector<db::LogEntry>> {
    db::Builds builds(database);
    TRY(builds.find(team, id, build));
    return builds.logs(build, window);
  };
  co_return co_await parts_.database->with(std::move(look));
}

io::Async<void> LocalTemplates::log(std::string build_id, std::vector<db::LogEntry> entries) {
  auto write = [build_id, entries = std::move(entries)](db::Database& database) -> Status {
    return db::Builds(database).append_logs(build_id, entries);
  };
  // A log that cannot be written ends no build.
  [[maybe_unused]] const Status written = co_await parts_.database->with(std::move(write));
}

io::Async<void> LocalTemplates::finished(BuildTask task, std::string image) {
  auto write = [team = task.team, id = task.template_id, build = task.build_id,
                image](db::Database& database) -> Result<std::vector<std::string>> {
    TRY(db::Builds(database).finish(build, image, now_ms()));
    return db::Templates(database).drop_untagged(team, id);
  };
  auto unused = co_await parts_.database->with(std::move(write));
  if (unused.has_value()) {
    co_await forget_images(std::move(*unused));
    co_return;
  }
  // Of a template that was removed meanwhile nobody will ask for the image.
  co_await forget_name(std::move(task.job.name));
}

io::Async<void> LocalTemplates::failed(BuildTask task, std::string step, std::string reason) {
  auto write = [build = task.build_id, step, reason](db::Database& database) -> Status {
    return db::Builds(database).set_failed(build, step, reason, now_ms());
  };
  [[maybe_unused]] const Status written = co_await parts_.database->with(std::move(write));
  co_await forget_name(std::move(task.job.name));
}

io::Async<void> LocalTemplates::forget_images(std::vector<std::string> images) {
  if (images.empty()) co_return;
  auto remove = [&host = parts_.host, images = std::move(images), names = queue_.names()] {
    return remove_names(host, [&](const maker::NamedImage& one) {
      return std::ranges::find(images, one.image) == images.end() ||
             std::ranges::find(names, one.name) != names.end();
    });
  };
  // What stays is removed when the server starts the next time.
  [[maybe_unused]] const Status removed = co_await parts_.loop.in_pool(std::move(remove));
}

io::Async<void> LocalTemplates::forget_name(std::string name) {
  auto forget = [&host = parts_.host, name = std::move(name)] {
    return host.drop_template_image(name);
  };
  [[maybe_unused]] const Status removed = co_await parts_.loop.in_pool(std::move(forget));
}

// ---- changing -----------------------------------------------------------------------------------

io::Async<Status> LocalTemplates::remove(std::string team, std::string name) {
  CO_TRY_ASSIGN(const db::Template found, co_await own(team, name));
  queue_.cancel(found.id, "the template was removed");
  auto remove = [found](db::Database& database) {
    return db::Templates(database).remove(found.team_id, found.id);
  };
  CO_TRY_ASSIGN(std::vector<std::string> images, co_await parts_.database->with(std::move(remove)));
  co_await forget_images(std::move(images));
  auto forget = [uploads = uploads_, id = found.id] {
    uploads.forget(id);
    return true;
  };
  co_await parts_.loop.in_pool(std::move(forget));
  co_return Status();
}

io::Async<Result<TemplateView>> LocalTemplates::set_access(std::string team, std::string name,
                                                           TemplateView::Access access) {
  CO_TRY_ASSIGN(const db::Template found, co_await own(team, name));
  auto change = [found, access](db::Database& database) -> Result<TemplateView> {
    db::Templates templates(database);
    TRY(templates.set_visibility(
        found.team_id, found.id,
        access == TemplateView::Access::kPublic ? db::Visibility::kPublic : db::Visibility::kTeam,
        now_ms()));
    TRY_ASSIGN(const db::Template changed, templates.find(found.team_id, found.id));
    return view_with_builds(database, changed);
  };
  co_return co_await parts_.database->with(std::move(change));
}

io::Async<Result<std::vector<db::TagInfo>>> LocalTemplates::tags(std::string team,
                                                                 std::string name) {
  CO_TRY_ASSIGN(const db::Template found, co_await own(team, name));
  auto look = [found](db::Database& database) {
    return db::Templates(database).tags(found.team_id, found.id);
  };
  co_return co_await parts_.database->with(std::move(look));
}

io::Async<Result<std::string>> LocalTemplates::set_tags(std::string team, std::string target,
                                                        std::vector<std::string> tags) {
  CO_TRY_ASSIGN(const db::TemplateReference reference, db::parse_template_reference(target));
  for (const std::string& tag : tags) CO_TRY(db::check_template_tag(tag));
  CO_TRY_ASSIGN(const db::Template found, co_await own(team, target));
  auto change =
      [found, reference,
       tags](db::Database& database) -> Result<std::pair<std::string, std::vector<std::string>>> {
    db::Templates templates(database);
    TRY_ASSIGN(const db::ResolvedTemplate resolved, templates.resolve(found.team_id, reference));
    TRY(templates.set_tags(found.team_id, found.id, resolved.build.id, tags, now_ms()));
    TRY_ASSIGN(std::vector<std::string> unused, templates.drop_untagged(found.team_id, found.id));
    return std::pair(resolved.build.id, std::move(unused));
  };
  CO_TRY_ASSIGN(auto changed, co_await parts_.database->with(std::move(change)));
  co_await forget_images(std::move(changed.second));
  co_return std::move(changed.first);
}

io::Async<Status> LocalTemplates::remove_tags(std::string team, std::string name,
                                              std::vector<std::string> tags) {
  CO_TRY_ASSIGN(const db::Template found, co_await own(team, name));
  auto change = [found, tags](db::Database& database) -> Result<std::vector<std::string>> {
    db::Templates templates(database);
    TRY(templates.remove_tags(found.team_id, found.id, tags));
    return templates.drop_untagged(found.team_id, found.id);
  };
  CO_TRY_ASSIGN(std::vector<std::string> images, co_await parts_.database->with(std::move(change)));
  co_await forget_images(std::move(images));
  co_return Status();
}

// ---- files of builds ----------------------------------------------------------------------------

std::string LocalTemplates::token_of(const std::string& id, const std::string& hash,
                                     std::int64_t expires) const {
  return parts_.upload_token(id + "/" + hash + "/" + std::to_string(expires));
}

io::Async<Result<UploadPlace>> LocalTemplates::upload_place(std::string team, std::string id,
                                                            std::string hash) {
  if (!is_sha256(hash))
    co_return fail(policy::wrong("hash", policy::quote(hash), "64 hexadecimal digits"));
  CO_TRY_ASSIGN(const db::Template found, co_await own(team, id));
  auto look = [uploads = uploads_, id = found.id, hash] {
    return uploads.find(id, hash).has_value();
  };
  UploadPlace place{.id = found.id};
  place.present = co_await parts_.loop.in_pool(std::move(look));
  place.expires = now_ms() / 1000 + kUploadTime.count();
  place.token = token_of(found.id, hash, place.expires);
  co_return place;
}

io::Async<Result<std::shared_ptr<Upload>>> LocalTemplates::begin_upload(std::string id,
                                                                        std::string hash,
                                                                        std::int64_t expires,
                                                                        std::string token) {
  // The token first: it is what makes the rest ours.
  if (!same_secret(token_of(id, hash, expires), token) || !is_sha256(hash))
    co_return fail(
        Error(Code::kPermissionDenied, "this place to upload to is none of the server's"));
  if (expires < now_ms() / 1000)
    co_return fail(Error(Code::kPermissionDenied, "the time to upload is over; ask for a new URL"));
  if (*uploading_ >= kMostUploads)
    co_return fail(
        Error::exhausted(std::to_string(kMostUploads) + " uploads are under way; try again later"));
  ++*uploading_;
  auto begin = [uploads = uploads_, id, hash] { return uploads.begin(id, hash); };
  auto begun = co_await parts_.loop.in_pool(std::move(begin));
  if (!begun.has_value()) {
    --*uploading_;
    co_return fail(std::move(begun).error());
  }
  co_return std::make_shared<CountedUpload>(std::move(*begun), uploading_);
}

}  // namespace caisson::api
