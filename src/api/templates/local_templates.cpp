#include "api/templates/local_templates.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "api/templates/local_templates_shared.h"
#include "policy/complain.h"

namespace caisson::api {
namespace {

constexpr std::uint32_t kMostListed = 1000;
constexpr std::uint32_t kMostBuilds = 100;    // that details() shows
constexpr std::uint64_t kUploadsOfTeam = 16;  // as many of the longest together

Result<TemplateView> view_with_builds(db::Database& database, const db::Template& found) {
  TRY_ASSIGN(const auto builds, db::Builds(database).list(found.team_id, found.id, kMostBuilds));
  return view_of(found, builds.empty() ? nullptr : builds.data(), builds.size());
}

Error not_yours(std::string_view name) {
  return Error(Code::kPermissionDenied,
               "template " + policy::quote(name) + " is the server's; it is changed on its host");
}

BuildQueue::Options queue_options(const LocalTemplates::Parts& parts) {
  const policy::BuildConfig& builds = parts.config.builds;
  BuildQueue::Options options;
  options.at_once = builds.at_once;
  options.team_at_once = builds.team_at_once;
  options.team_most = builds.team_most;
  if (builds.time_ms.has_value()) options.time = std::chrono::milliseconds(*builds.time_ms);
  options.room = parts.room;
  return options;
}

Uploads::Limits upload_limits(const policy::ServerConfig& config) {
  const std::uint64_t most = config.builds.upload.value_or(1ull << 50);
  return {.file = most,
          .team = std::max(most, Uploads::kLeastCounted) * kUploadsOfTeam,
          .total = config.builds.uploads.value_or(std::numeric_limits<std::uint64_t>::max())};
}

}  // namespace

LocalTemplates::LocalTemplates(Parts parts)
    : parts_(std::move(parts)),
      catalogue_(parts_.loop, parts_.host, parts_.config),
      uploads_(parts_.uploads, upload_limits(parts_.config)),
      queue_(parts_.loop, parts_.host, queue_options(parts_), *this),
      ended_(parts_.loop) {}

io::Async<Status> LocalTemplates::prepare() {
  auto fail_all = [](db::Database& database) {
    return db::Builds(database).fail_unfinished(kInterrupted, now_ms());
  };
  CO_TRY(co_await parts_.database->with(std::move(fail_all)));
  auto clean = [uploads = uploads_] { return uploads.prepare(); };
  CO_TRY(co_await parts_.loop.in_pool(std::move(clean)));
  co_return co_await sweep();
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

// ---- changing -----------------------------------------------------------------------------------

io::Async<Status> LocalTemplates::remove(std::string team, std::string name) {
  CO_TRY_ASSIGN(const db::Template found, co_await own(team, name));
  queue_.cancel(found.id, "the template was removed");
  auto remove = [found](db::Database& database) {
    return db::Templates(database).remove(found.team_id, found.id);
  };
  CO_TRY_ASSIGN(std::vector<std::string> images, co_await parts_.database->with(std::move(remove)));
  co_await forget_images(std::move(images));
  const Uploads::Owner owner{.team = found.team_id, .id = found.id};
  auto forget = [uploads = uploads_, owner] {
    uploads.forget(owner);
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

}  // namespace caisson::api
