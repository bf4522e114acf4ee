#include "api/database_snapshots.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/encoding.h"
#include "db/teams.h"
#include "db/template_name.h"
#include "db/templates.h"
#include "fleet/shape.h"
#include "policy/complain.h"

namespace caisson::api {
namespace {

constexpr std::size_t kLongestToken = 200;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

SnapshotView view_of(const db::Template& row, const std::string& slug) {
  SnapshotView view{.id = row.id, .names = {}};
  for (const std::string& name : row.names) view.names.push_back(slug + "/" + name);
  if (!view.names.empty()) view.id = view.names.front() + ":" + std::string(db::kDefaultTag);
  return view;
}

std::string token_of(const db::TemplateCursor& cursor) {
  return base64url_encode(std::to_string(cursor.created_ms) + "_" + cursor.id);
}

Result<db::TemplateCursor> parse_token(const std::string& text) {
  const auto wrong = [&] {
    return fail(policy::wrong("nextToken", policy::quote(text), "the X-Next-Token of a page"));
  };
  const auto decoded = text.size() > kLongestToken ? std::nullopt : base64url_decode(text);
  if (!decoded.has_value()) return wrong();
  db::TemplateCursor cursor;
  const char* const end = decoded->data() + decoded->size();
  const auto number = std::from_chars(decoded->data(), end, cursor.created_ms);
  if (number.ec != std::errc() || number.ptr == end || *number.ptr != '_') return wrong();
  cursor.id.assign(number.ptr + 1, end);
  return cursor;
}

// Another team's names are as if they were not.
Result<db::TemplateReference> own_reference(const std::string& slug, const std::string& name) {
  TRY_ASSIGN(db::TemplateReference reference, db::parse_template_reference(name));
  if (!reference.space.empty() && reference.space != slug)
    return fail(Error::not_found("template " + policy::quote(name) + " not found"));
  return reference;
}

// The name that a new snapshot of the team gets; empty: none.
Result<std::string> check_new(db::Database& database, const db::Team& owner,
                              const std::string& name, std::uint64_t most) {
  db::Templates templates(database);
  std::string own;
  if (!name.empty()) {
    TRY_ASSIGN(const db::TemplateReference reference, own_reference(owner.slug, name));
    own = reference.name;
    TRY(db::check_template_name(own));
    const auto there =
        templates.find(owner.id, db::TemplateReference{.space = "", .name = own, .tag = ""});
    if (!there.has_value() && there.error().code() != Code::kNotFound) return fail(there.error());
    if (there.has_value() && !there->source_sandbox.has_value())
      return fail(Error(Code::kAlreadyExists, "there is a template " + policy::quote(own)));
    // One takes the other's place.
    if (there.has_value()) return own;
  }
  TRY_ASSIGN(const std::uint64_t present, templates.count_snapshots(owner.id));
  if (present >= most)
    return fail(Error::exhausted("the team has " + std::to_string(present) +
                                 " snapshots; allowed are " + std::to_string(most)));
  return own;
}

}  // namespace

io::Async<Status> DatabaseSnapshots::check(std::string team, std::string name) {
  auto work = [team = std::move(team), name = std::move(name),
               most = options_.most](db::Database& database) -> Result<std::string> {
    TRY_ASSIGN(const db::Team owner, db::Teams(database).find_id(team));
    return check_new(database, owner, name, most);
  };
  const auto checked = co_await database_->with(std::move(work));
  if (!checked.has_value()) co_return fail(checked.error());
  co_return Status();
}

io::Async<Status> DatabaseSnapshots::drop(std::string team, std::vector<std::string> images) {
  if (images.empty()) co_return Status();
  const io::Turns::Turn turn = co_await io::Turns::take(options_.turns, std::move(team));
  auto work = [&host = host_, images = std::move(images)]() -> Status {
    for (const std::string& image : images) TRY(host.drop_snapshot(image));
    return {};
  };
  co_return co_await loop_.in_pool(std::move(work));
}

io::Async<Result<SnapshotView>> DatabaseSnapshots::add(std::string team, std::string sandbox,
                                                       std::string name, fleet::Snapshot taken) {
  struct Added {
    SnapshotView view;
    std::vector<std::string> unused;
  };
  std::vector<std::string> images = {taken.image};
  auto work = [team, sandbox = std::move(sandbox), name = std::move(name), taken = std::move(taken),
               most = options_.most](db::Database& database) -> Result<Added> {
    TRY_ASSIGN(const db::Team owner, db::Teams(database).find_id(team));
    TRY_ASSIGN(const std::string own, check_new(database, owner, name, most));
    TRY_ASSIGN(
        db::AddedSnapshot added,
        db::Templates(database).add_snapshot(
            team,
            {.source_sandbox = sandbox,
             .name = own,
             .image = taken.image,
             .size = {.cpu_milli = taken.cpu_milli, .memory = taken.memory, .disk = taken.disk},
             .shape = taken.shape},
            now_ms()));
    return Added{.view = view_of(added.added, owner.slug),
                 .unused = std::move(added.unused_images)};
  };
  auto added = co_await database_->with(std::move(work));
  // What stays is swept later.
  if (!added.has_value()) {
    std::ignore = co_await drop_unneeded(std::move(team), std::move(images));
    co_return fail(std::move(added).error());
  }
  std::ignore = co_await drop(std::move(team), std::move(added->unused));
  co_return std::move(added->view);
}

io::Async<Result<SnapshotPage>> DatabaseSnapshots::list(std::string team, SnapshotQuery query) {
  auto work = [team, query = std::move(query)](db::Database& database) -> Result<SnapshotPage> {
    TRY_ASSIGN(const db::Team owner, db::Teams(database).find_id(team));
    db::TemplateFilter filter{.kind = db::TemplateKind::kSnapshot,
                              .source_sandbox = query.sandbox,
                              .name = {},
                              .after = {},
                              .limit = static_cast<std::uint32_t>(query.limit)};
    if (query.name.has_value()) {
      auto reference = own_reference(owner.slug, *query.name);
      if (!reference.has_value()) {
        // A filter that nothing can match is none's fault.
        if (reference.error().code() == Code::kNotFound) return SnapshotPage();
        return fail(std::move(reference).error());
      }
      filter.name = reference->name;
    }
    if (!query.after.empty()) {
      TRY_ASSIGN(filter.after, parse_token(query.after));
    }
    TRY_ASSIGN(const db::TemplatePage rows, db::Templates(database).list(team, filter));
    SnapshotPage page;
    for (const db::Template& row : rows.rows) page.snapshots.push_back(view_of(row, owner.slug));
    if (rows.next.has_value()) page.next_token = token_of(*rows.next);
    return page;
  };
  co_return co_await database_->with(std::move(work));
}

io::Async<Status> DatabaseSnapshots::remove(std::string team, std::string name) {
  auto work = [team, name](db::Database& database) -> Result<std::vector<std::string>> {
    TRY_ASSIGN(const db::Team owner, db::Teams(database).find_id(team));
    TRY_ASSIGN(const db::TemplateReference reference, own_reference(owner.slug, name));
    db::Templates templates(database);
    TRY_ASSIGN(const db::Template found, templates.find(team, reference));
    if (!found.source_sandbox.has_value())
      return fail(Error::not_found("snapshot " + policy::quote(name) + " not found"));
    return templates.remove(team, found.id);
  };
  CO_TRY_ASSIGN(std::vector<std::string> unused, co_await database_->with(std::move(work)));
  std::ignore = co_await drop(std::move(team), std::move(unused));
  co_return Status();
}

io::Async<Result<fleet::Template>> DatabaseSnapshots::to_make(std::string team, std::string name) {
  auto work = [team, name](db::Database& database) -> Result<fleet::Template> {
    TRY_ASSIGN(const db::Team owner, db::Teams(database).find_id(team));
    TRY_ASSIGN(const db::TemplateReference reference, own_reference(owner.slug, name));
    TRY_ASSIGN(const db::ResolvedTemplate found, db::Templates(database).resolve(team, reference));
    if (!found.found.source_sandbox.has_value())
      return fail(Error::not_found("snapshot " + policy::quote(name) + " not found"));
    fleet::Template made{.id = found.found.id,
                         .alias = found.found.names.empty() ? "" : found.found.names.front(),
                         .recipe = {.image = found.build.image},
                         .env = {}};
    const auto limit = [](std::uint64_t size) {
      return size == 0 ? policy::LimitValue() : policy::LimitValue(size);
    };
    made.recipe.cpu_milli = limit(found.build.size.cpu_milli);
    made.recipe.memory_bytes = limit(found.build.size.memory);
    made.recipe.disk_bytes = limit(found.build.size.disk);
    // One of an earlier version has no more to say.
    if (found.shape.empty()) return made;
    auto shape = fleet::decode_shape(found.shape);
    if (!shape.has_value())
      return fail(Error::precondition("snapshot " + policy::quote(name) +
                                      " was taken by another version of the server, and this one "
                                      "does not know all that it says of its sandboxes: " +
                                      shape.error().message()));
    made.recipe = std::move(shape->recipe);
    made.recipe.image = found.build.image;
    made.start = std::move(shape->start);
    return made;
  };
  co_return co_await database_->with(std::move(work));
}

io::Async<Status> DatabaseSnapshots::sweep() {
  // The images first: what comes to be needed afterwards is not old.
  auto look = [&host = host_] { return host.old_snapshots(); };
  CO_TRY_ASSIGN(std::vector<std::string> images, co_await loop_.in_pool(std::move(look)));
  co_return co_await drop_unneeded("", std::move(images));
}

io::Async<Status> DatabaseSnapshots::drop_unneeded(std::string team,
                                                   std::vector<std::string> images) {
  auto work = [](db::Database& database) { return db::Templates(database).images_of_any_team(); };
  CO_TRY_ASSIGN(const std::vector<std::string> needed, co_await database_->with(std::move(work)));
  std::erase_if(
      images, [&](const std::string& image) { return std::ranges::binary_search(needed, image); });
  co_return co_await drop(std::move(team), std::move(images));
}

}  // namespace caisson::api
