// Templates and snapshots, which are the same to who makes a sandbox of them: an id, perhaps names,
// and builds (db/builds.h), of which tags say which one is meant. A snapshot is a template that
// knows the sandbox that it was taken of; its one build was ready from the start.
//
// Names and tags are a team's own. Each function knows one team's rows alone, another team's being
// not_found, but those that say otherwise: a template that is public may be used by every team.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "db/builds.h"
#include "db/database.h"
#include "db/template_name.h"

namespace caisson::db {

struct Template {
  std::string id;  // 20 of [a-z0-9]
  std::string team_id;
  std::string space;                          // the team's slug
  std::vector<std::string> names;             // without the team's slug, sorted
  std::optional<std::string> source_sandbox;  // of a snapshot
  std::int64_t created_ms = 0;
  std::int64_t updated_ms = 0;
  bool is_public = false;  // every team may make sandboxes and templates of it
  bool operator==(const Template&) const = default;
};

enum class Visibility : std::uint8_t { kTeam, kPublic };

struct TagInfo {
  std::string tag;
  std::string build_id;
  std::int64_t set_ms = 0;
  bool operator==(const TagInfo&) const = default;
};

enum class TemplateKind : std::uint8_t { kBuilt, kSnapshot };

struct TemplateCursor {
  std::int64_t created_ms = 0;
  std::string id;
  bool operator==(const TemplateCursor&) const = default;
};

// Newest first.
struct TemplateFilter {
  TemplateKind kind = TemplateKind::kBuilt;
  std::optional<std::string> source_sandbox;
  std::optional<std::string> name;
  std::optional<TemplateCursor> after;
  std::uint32_t limit = 100;
};

struct TemplatePage {
  std::vector<Template> rows;
  std::optional<TemplateCursor> next;  // nullopt: there are no more
};

// What a sandbox is made of.
struct ResolvedTemplate {
  Template found;
  Build build;        // ready
  std::string shape;  // of a snapshot; empty: an earlier version took it
};

struct Snapshot {
  std::string source_sandbox;
  std::string name;   // may be empty
  std::string image;  // or whatever else of the store it is kept as
  BuildSize size;
  // JSON that belongs to who serves it: what of its sandbox else a sandbox of it gets. Nothing
  // secret may be in it.
  std::string shape = "{}";
};
inline constexpr std::size_t kMaxShape = 512 << 10;

struct AddedSnapshot {
  Template added;
  std::vector<std::string> unused_images;  // of the snapshot that had the name before
};

class Templates {
 public:
  explicit Templates(Database& database) : sqlite_(database.sqlite()) {}

  // The team's template of that name, made where there is none. Errors: invalid_argument (the name
  // is none), already_exists (it is a snapshot's), failed_precondition (no such team).
  Result<Template> ensure(std::string_view team_id, std::string_view name, std::int64_t now_ms);
  Result<Template> find(std::string_view team_id, std::string_view id);
  // Whose template of that id it is. Error: not_found.
  Result<std::string> team_of(std::string_view id);
  // By name or id; the tag does not matter.
  Result<Template> find(std::string_view team_id, const TemplateReference& reference);
  // The team's own, else another team's that is public, by id or with its namespace. Errors:
  // not_found, permission_denied (another team's that is not public).
  Result<Template> find_usable(std::string_view team_id, const TemplateReference& reference);
  // The build that the reference's tag means, of find_usable(). not_found where there is no such
  // tag, and for what is another team's.
  Result<ResolvedTemplate> resolve(std::string_view team_id, const TemplateReference& reference);
  Result<TemplatePage> list(std::string_view team_id, const TemplateFilter& filter);
  // With its builds, names and tags. Returns the images that nothing refers to any more.
  Result<std::vector<std::string>> remove(std::string_view team_id, std::string_view id);

  Status set_visibility(std::string_view team_id, std::string_view id, Visibility visibility,
                        std::int64_t now_ms);
  // Of a template's ready builds, those that no tag means any more let go of their images. Returns
  // the images that nothing refers to any more.
  Result<std::vector<std::string>> drop_untagged(std::string_view team_id, std::string_view id);

  // The same for the templates of all teams, but no snapshots.
  Status drop_untagged_of_any_team();

  // With one ready build, tagged kDefaultTag. Where another snapshot has the name, that snapshot is
  // replaced and its id stays. Errors: invalid_argument (the name is none, or the shape is larger
  // than kMaxShape), already_exists (it is a built template's), failed_precondition (no such team).
  Result<AddedSnapshot> add_snapshot(std::string_view team_id, const Snapshot& snapshot,
                                     std::int64_t now_ms);

  Result<std::uint64_t> count_snapshots(std::string_view team_id);
  // Those that are no snapshots.
  Result<std::uint64_t> count_built(std::string_view team_id);

  // By tag.
  Result<std::vector<TagInfo>> tags(std::string_view team_id, std::string_view id);
  // Errors: not_found (no such build of that template), failed_precondition (it is not ready),
  // invalid_argument (a tag that is none).
  Status set_tags(std::string_view team_id, std::string_view id, std::string_view build_id,
                  const std::vector<std::string>& tags, std::int64_t now_ms);
  // Errors: not_found (the template lacks one of them; then none is removed).
  Status remove_tags(std::string_view team_id, std::string_view id,
                     const std::vector<std::string>& tags);

  // Images that a build or a sandbox refers to: the store must keep them. Sorted.
  Result<std::vector<std::string>> images_of_any_team();

 private:
  Result<Template> make(std::string_view team_id, std::string_view name,
                        const std::optional<std::string>& source_sandbox, std::int64_t now_ms);
  // The images of `images` that neither a build nor a sandbox refers to.
  Result<std::vector<std::string>> unused(std::vector<std::string> images);

  Sqlite& sqlite_;
};

}  // namespace caisson::db
