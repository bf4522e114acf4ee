#include "db/templates.h"

#include <limits>

#include "base/secret.h"
#include "db/text.h"

namespace caisson::db {
namespace {

constexpr std::size_t kIdLength = 20;

constexpr SqlText kSelect =
    "SELECT id, team_id, source_sandbox, created_ms, updated_ms, public, (SELECT slug FROM teams "
    "WHERE teams.id = team_id) FROM templates";

Error no_template(std::string_view name) {
  return Error::not_found("no template " + quoted(name));
}

Result<std::vector<std::string>> read_words(Query query) {
  std::vector<std::string> words;
  for (;;) {
    TRY_ASSIGN(const bool more, query.next());
    if (!more) return words;
    words.push_back(query.get<std::string>(0));
  }
}

Result<Template> read_template(Sqlite& sqlite, const Query& row) {
  Template found = {.id = row.get<std::string>(0),
                    .team_id = row.get<std::string>(1),
                    .space = row.get<std::string>(6),
                    .names = {},
                    .source_sandbox = row.get<std::optional<std::string>>(2),
                    .created_ms = row.get<std::int64_t>(3),
                    .updated_ms = row.get<std::int64_t>(4),
                    .is_public = row.get<std::int64_t>(5) != 0};
  TRY_ASSIGN(Query names, sqlite.query("SELECT name FROM template_names WHERE template_id = ? "
                                       "ORDER BY name",
                                       found.id));
  TRY_ASSIGN(found.names, read_words(std::move(names)));
  return found;
}

Result<Template> only_template(Sqlite& sqlite, Query query, std::string_view called) {
  TRY_ASSIGN(const bool found, query.next());
  if (!found) return fail(no_template(called));
  return read_template(sqlite, query);
}

Status set_tag(Sqlite& sqlite, std::string_view id, std::string_view tag, std::string_view build,
               std::int64_t now_ms) {
  TRY(sqlite.run("INSERT OR REPLACE INTO template_tags VALUES (?, ?, ?, ?)", id, tag, build,
                 now_ms));
  return {};
}

Result<std::vector<std::string>> images_of(Sqlite& sqlite, std::string_view id) {
  TRY_ASSIGN(Query images, sqlite.query("SELECT DISTINCT image FROM builds WHERE template_id = ? "
                                        "AND image <> '' ORDER BY image",
                                        id));
  return read_words(std::move(images));
}

}  // namespace

Result<Template> Templates::make(std::string_view team_id, std::string_view name,
                                 const std::optional<std::string>& source_sandbox,
                                 std::int64_t now_ms) {
  const std::string id = random_id(kIdLength);
  const auto added = sqlite_.run(
      "INSERT INTO templates (id, team_id, source_sandbox, created_ms, updated_ms) VALUES (?, ?, "
      "?, ?, ?)",
      id, team_id, source_sandbox, now_ms, now_ms);
  if (!added.has_value()) {
    if (added.error().code() != Code::kFailedPrecondition) return fail(added.error());
    return fail(Error::precondition("no team " + quoted(team_id)));
  }
  if (!name.empty())
    TRY(sqlite_.run("INSERT INTO template_names VALUES (?, ?, ?)", team_id, name, id));
  return find(team_id, id);
}

Result<Template> Templates::ensure(std::string_view team_id, std::string_view name,
                                   std::int64_t now_ms) {
  TRY(check_template_name(name));
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_));
  auto found = find(team_id, TemplateReference{.space = "", .name = std::string(name), .tag = ""});
  if (!found.has_value()) {
    if (found.error().code() != Code::kNotFound) return found;
    found = make(team_id, name, std::nullopt, now_ms);
    if (!found.has_value()) return found;
  }
  if (found->source_sandbox.has_value()) {
    return fail(Error(Code::kAlreadyExists, "there is a snapshot " + quoted(name)));
  }
  TRY(transaction.commit());
  return found;
}

Result<Template> Templates::find(std::string_view team_id, std::string_view id) {
  static constexpr auto kFind = kSelect + " WHERE id = ? AND team_id = ?";
  TRY_ASSIGN(Query query, sqlite_.query(kFind, id, team_id));
  return only_template(sqlite_, std::move(query), id);
}

Result<std::string> Templates::team_of(std::string_view id) {
  TRY_ASSIGN(Query query, sqlite_.query("SELECT team_id FROM templates WHERE id = ?", id));
  TRY_ASSIGN(const bool found, query.next());
  if (!found) return fail(no_template(id));
  return query.get<std::string>(0);
}

Result<Template> Templates::find(std::string_view team_id, const TemplateReference& reference) {
  // A name goes before an id that looks the same.
  static constexpr auto kFind =
      kSelect +
      " WHERE team_id = ?1 AND (id = ?2 OR id = (SELECT template_id FROM template_names WHERE "
      "team_id = ?1 AND name = ?2)) AND (?3 = '' OR ?3 = (SELECT slug FROM teams WHERE id = ?1)) "
      "ORDER BY id = ?2 LIMIT 1";
  TRY_ASSIGN(Query query, sqlite_.query(kFind, team_id, reference.name, reference.space));
  return only_template(
      sqlite_, std::move(query),
      reference.space.empty() ? reference.name : reference.space + "/" + reference.name);
}

Result<Template> Templates::find_usable(std::string_view team_id,
                                        const TemplateReference& reference) {
  auto own = find(team_id, reference);
  if (own.has_value() || own.error().code() != Code::kNotFound) return own;
  static constexpr auto kFind =
      kSelect +
      " WHERE (?2 = '' AND id = ?1) OR (?2 <> '' AND id = (SELECT template_id FROM template_names "
      "WHERE name = ?1 AND template_names.team_id = (SELECT id FROM teams WHERE slug = ?2)))";
  TRY_ASSIGN(Query query, sqlite_.query(kFind, reference.name, reference.space));
  TRY_ASSIGN(const bool found, query.next());
  if (!found) return own;
  TRY_ASSIGN(Template other, read_template(sqlite_, query));
  if (other.is_public) return other;
  return fail(
      Error(Code::kPermissionDenied, "template " + quoted(reference.name) + " is another team's"));
}

Result<ResolvedTemplate> Templates::resolve(std::string_view team_id,
                                            const TemplateReference& reference) {
  auto usable = find_usable(team_id, reference);
  // That there is one is nobody else's business where it cannot be used.
  if (!usable.has_value() && usable.error().code() == Code::kPermissionDenied)
    return fail(no_template(reference.name));
  if (!usable.has_value()) return fail(std::move(usable).error());
  Template found = std::move(*usable);
  std::string build_id;
  {
    TRY_ASSIGN(Query query,
               sqlite_.query("SELECT build_id FROM template_tags WHERE template_id = ? AND tag = ?",
                             found.id, reference.tag));
    TRY_ASSIGN(const bool tagged, query.next());
    if (!tagged) {
      return fail(Error::not_found("template " + quoted(reference.name) + " has no build tagged " +
                                   quoted(reference.tag)));
    }
    build_id = query.get<std::string>(0);
  }
  TRY_ASSIGN(Build build, Builds(sqlite_).find(found.team_id, found.id, build_id));
  TRY_ASSIGN(Query shapes,
             sqlite_.query("SELECT shape FROM snapshot_shapes WHERE template_id = ?", found.id));
  TRY_ASSIGN(const bool shaped, shapes.next());
  return ResolvedTemplate{.found = std::move(found),
                          .build = std::move(build),
                          .shape = shaped ? shapes.get<std::string>(0) : std::string()};
}

Result<TemplatePage> Templates::list(std::string_view team_id, const TemplateFilter& filter) {
  static constexpr auto kList =
      kSelect +
      " WHERE team_id = ?1 AND (source_sandbox IS NOT NULL) = ?2 AND (?3 IS NULL OR "
      "source_sandbox = ?3) AND (?4 IS NULL OR id = (SELECT template_id FROM template_names WHERE "
      "team_id = ?1 AND name = ?4)) AND (created_ms, id) < (?5, ?6) ORDER BY created_ms DESC, id "
      "DESC LIMIT ?7";
  const TemplateCursor after = filter.after.value_or(
      TemplateCursor{.created_ms = std::numeric_limits<std::int64_t>::max(), .id = ""});
  TRY_ASSIGN(Query query,
             sqlite_.query(kList, team_id, filter.kind == TemplateKind::kSnapshot ? 1 : 0,
                           filter.source_sandbox, filter.name, after.created_ms, after.id,
                           std::int64_t{filter.limit} + 1));
  TemplatePage page;
  for (;;) {
    TRY_ASSIGN(const bool more, query.next());
    if (!more) return page;
    if (page.rows.size() == filter.limit) {
      if (!page.rows.empty()) {
        page.next =
            TemplateCursor{.created_ms = page.rows.back().created_ms, .id = page.rows.back().id};
      }
      return page;
    }
    TRY_ASSIGN(Template row, read_template(sqlite_, query));
    page.rows.push_back(std::move(row));
  }
}

Result<std::vector<std::string>> Templates::unused(std::vector<std::string> images) {
  std::vector<std::string> left;
  for (std::string& image : images) {
    TRY_ASSIGN(Query query, sqlite_.query("SELECT EXISTS (SELECT 1 FROM builds WHERE image = ?1) "
                                          "OR EXISTS (SELECT 1 FROM sandboxes WHERE image = ?1)",
                                          image));
    TRY(query.next());
    if (query.get<std::int64_t>(0) == 0) left.push_back(std::move(image));
  }
  return left;
}

Result<std::vector<std::string>> Templates::remove(std::string_view team_id, std::string_view id) {
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_));
  TRY(find(team_id, id));
  TRY_ASSIGN(std::vector<std::string> images, images_of(sqlite_, id));
  TRY(sqlite_.run("DELETE FROM templates WHERE id = ?", id));
  TRY_ASSIGN(images, unused(std::move(images)));
  TRY(transaction.commit());
  return images;
}

Status Templates::set_visibility(std::string_view team_id, std::string_view id,
                                 Visibility visibility, std::int64_t now_ms) {
  TRY_ASSIGN(const std::int64_t changed,
             sqlite_.run("UPDATE templates SET public = ?, updated_ms = ? WHERE id = ? AND "
                         "team_id = ?",
                         visibility == Visibility::kPublic ? 1 : 0, now_ms, id, team_id));
  if (changed == 0) return fail(no_template(id));
  return {};
}

Result<std::vector<std::string>> Templates::drop_untagged(std::string_view team_id,
                                                          std::string_view id) {
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_));
  TRY(find(team_id, id));
  TRY_ASSIGN(std::vector<std::string> images, images_of(sqlite_, id));
  TRY(
      sqlite_.run("UPDATE builds SET image = '' WHERE template_id = ?1 AND status = 'ready' AND id "
                  "NOT IN (SELECT build_id FROM template_tags WHERE template_id = ?1)",
                  id));
  TRY_ASSIGN(images, unused(std::move(images)));
  TRY(transaction.commit());
  return images;
}

Status Templates::drop_untagged_of_any_team() {
  TRY(
      sqlite_.run("UPDATE builds SET image = '' WHERE status = 'ready' AND image <> '' AND id NOT "
                  "IN (SELECT build_id FROM template_tags) AND template_id NOT IN (SELECT id FROM "
                  "templates WHERE source_sandbox IS NOT NULL)"));
  return {};
}

Result<AddedSnapshot> Templates::add_snapshot(std::string_view team_id, const Snapshot& snapshot,
                                              std::int64_t now_ms) {
  if (!snapshot.name.empty()) TRY(check_template_name(snapshot.name));
  if (snapshot.shape.size() > kMaxShape)
    return fail(Error::invalid("shape: found " + std::to_string(snapshot.shape.size()) +
                               " bytes of JSON; allowed are " + std::to_string(kMaxShape)));
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_));
  Result<Template> added = fail(no_template(snapshot.name));
  if (!snapshot.name.empty()) {
    added = find(team_id, TemplateReference{.space = "", .name = snapshot.name, .tag = ""});
    if (!added.has_value() && added.error().code() != Code::kNotFound) {
      return fail(std::move(added).error());
    }
  }
  std::vector<std::string> images;
  if (!added.has_value()) {
    added = make(team_id, snapshot.name, snapshot.source_sandbox, now_ms);
    if (!added.has_value()) return fail(std::move(added).error());
  } else {
    if (!added->source_sandbox.has_value()) {
      return fail(Error(Code::kAlreadyExists, "there is a template " + quoted(snapshot.name)));
    }
    TRY_ASSIGN(images, images_of(sqlite_, added->id));
    TRY(sqlite_.run("DELETE FROM builds WHERE template_id = ?", added->id));
    TRY(sqlite_.run("UPDATE templates SET source_sandbox = ?, updated_ms = ? WHERE id = ?",
                    snapshot.source_sandbox, now_ms, added->id));
    added->source_sandbox = snapshot.source_sandbox;
    added->updated_ms = now_ms;
  }
  const std::string build_id = random_uuid();
  TRY(
      sqlite_.run("INSERT INTO builds (id, template_id, status, tags, image, cpu_milli, memory, "
                  "disk, start_command, ready_command, failure, failure_step, created_ms, "
                  "finished_ms) VALUES (?, ?, 'ready', ?, ?, ?, ?, ?, '', '', '', '', ?, ?)",
                  build_id, added->id, kDefaultTag, snapshot.image, snapshot.size.cpu_milli,
                  snapshot.size.memory, snapshot.size.disk, now_ms, now_ms));
  TRY(set_tag(sqlite_, added->id, kDefaultTag, build_id, now_ms));
  TRY(sqlite_.run("INSERT OR REPLACE INTO snapshot_shapes (template_id, shape) VALUES (?, ?)",
                  added->id, snapshot.shape));
  TRY_ASSIGN(images, unused(std::move(images)));
  TRY(transaction.commit());
  return AddedSnapshot{.added = std::move(*added), .unused_images = std::move(images)};
}

Result<std::uint64_t> Templates::count_snapshots(std::string_view team_id) {
  TRY_ASSIGN(Query query, sqlite_.query("SELECT count(*) FROM templates WHERE team_id = ? AND "
                                        "source_sandbox IS NOT NULL",
                                        team_id));
  TRY(query.next());
  return static_cast<std::uint64_t>(query.get<std::int64_t>(0));
}

Result<std::uint64_t> Templates::count_built(std::string_view team_id) {
  TRY_ASSIGN(Query query, sqlite_.query("SELECT count(*) FROM templates WHERE team_id = ? AND "
                                        "source_sandbox IS NULL",
                                        team_id));
  TRY(query.next());
  return static_cast<std::uint64_t>(query.get<std::int64_t>(0));
}

Result<std::vector<TagInfo>> Templates::tags(std::string_view team_id, std::string_view id) {
  TRY(find(team_id, id));
  TRY_ASSIGN(Query query, sqlite_.query("SELECT tag, build_id, set_ms FROM template_tags WHERE "
                                        "template_id = ? ORDER BY tag",
                                        id));
  std::vector<TagInfo> tags;
  for (;;) {
    TRY_ASSIGN(const bool more, query.next());
    if (!more) return tags;
    tags.push_back({.tag = query.get<std::string>(0),
                    .build_id = query.get<std::string>(1),
                    .set_ms = query.get<std::int64_t>(2)});
  }
}

Status Templates::set_tags(std::string_view team_id, std::string_view id, std::string_view build_id,
                           const std::vector<std::string>& tags, std::int64_t now_ms) {
  for (const std::string& tag : tags) TRY(check_template_tag(tag));
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_));
  TRY_ASSIGN(const Build build, Builds(sqlite_).find(team_id, id, build_id));
  if (build.status != BuildStatus::kReady) {
    return fail(Error::precondition("build " + quoted(build_id) + " is not ready"));
  }
  for (const std::string& tag : tags) TRY(set_tag(sqlite_, id, tag, build_id, now_ms));
  return transaction.commit();
}

Status Templates::remove_tags(std::string_view team_id, std::string_view id,
                              const std::vector<std::string>& tags) {
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_));
  TRY(find(team_id, id));
  for (const std::string& tag : tags) {
    TRY_ASSIGN(const std::int64_t removed,
               sqlite_.run("DELETE FROM template_tags WHERE template_id = ? AND tag = ?", id, tag));
    if (removed == 0) {
      return fail(Error::not_found("template " + quoted(id) + " has no tag " + quoted(tag)));
    }
  }
  return transaction.commit();
}

Result<std::vector<std::string>> Templates::images_of_any_team() {
  TRY_ASSIGN(Query query, sqlite_.query("SELECT image FROM builds WHERE image <> '' UNION "
                                        "SELECT image FROM sandboxes WHERE image <> '' "
                                        "ORDER BY image"));
  return read_words(std::move(query));
}

}  // namespace caisson::db
