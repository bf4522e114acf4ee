#include "db/teams.h"

#include "base/secret.h"
#include "db/text.h"

namespace caisson::db {
namespace {

constexpr std::size_t kMaxSlug = 63;

constexpr SqlText kSelect =
    "SELECT id, slug, name, created_ms, most_running, most_cpu_milli, most_memory, most_disk, "
    "most_lifetime_ms FROM teams";

using MaybeAmount = std::optional<std::uint64_t>;

Team read_team(const Query& row) {
  return {.id = row.get<std::string>(0),
          .slug = row.get<std::string>(1),
          .name = row.get<std::string>(2),
          .created_ms = row.get<std::int64_t>(3),
          .quota = {.running = row.get<MaybeAmount>(4),
                    .cpu_milli = row.get<MaybeAmount>(5),
                    .memory = row.get<MaybeAmount>(6),
                    .disk = row.get<MaybeAmount>(7),
                    .lifetime_ms = row.get<MaybeAmount>(8)}};
}

Result<Team> only_team(Query query, std::string_view called) {
  TRY_ASSIGN(const bool found, query.next());
  if (!found) return fail(Error::not_found("no team " + quoted(called)));
  return read_team(query);
}

Status check_slug(std::string_view slug) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  };
  bool right = !slug.empty() && slug.size() <= kMaxSlug && slug[0] != '-';
  for (const char c : slug) right = right && allowed(c);
  if (right) return {};
  return fail(Error::invalid("team: found " + quoted(slug) +
                             "; allowed are 1 to 63 of a-z, 0-9 and -, not beginning with -"));
}

}  // namespace

Result<Team> Teams::create(std::string_view slug, std::string_view name, const Quota& quota,
                           std::int64_t now_ms) {
  TRY(check_slug(slug));
  TRY(check_label("name", name));
  Team team = {.id = random_uuid(),
               .slug = std::string(slug),
               .name = std::string(name),
               .created_ms = now_ms,
               .quota = quota};
  const auto made = sqlite_.run("INSERT INTO teams VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", team.id,
                                team.slug, team.name, team.created_ms, quota.running,
                                quota.cpu_milli, quota.memory, quota.disk, quota.lifetime_ms);
  if (made.has_value()) return team;
  if (made.error().code() != Code::kAlreadyExists) return fail(made.error());
  return fail(Error(Code::kAlreadyExists, "there is a team " + quoted(slug) + " already"));
}

Result<Team> Teams::find(std::string_view slug) {
  static constexpr auto kFind = kSelect + " WHERE slug = ?";
  TRY_ASSIGN(Query query, sqlite_.query(kFind, slug));
  return only_team(std::move(query), slug);
}

Result<Team> Teams::find_id(std::string_view id) {
  static constexpr auto kFind = kSelect + " WHERE id = ?";
  TRY_ASSIGN(Query query, sqlite_.query(kFind, id));
  return only_team(std::move(query), id);
}

Result<std::vector<Team>> Teams::list() {
  static constexpr auto kList = kSelect + " ORDER BY slug";
  TRY_ASSIGN(Query query, sqlite_.query(kList));
  std::vector<Team> teams;
  for (;;) {
    TRY_ASSIGN(const bool more, query.next());
    if (!more) return teams;
    teams.push_back(read_team(query));
  }
}

Status Teams::set_quota(std::string_view id, const Quota& quota) {
  TRY_ASSIGN(
      const std::int64_t changed,
      sqlite_.run("UPDATE teams SET most_running = ?, most_cpu_milli = ?, most_memory = ?, "
                  "most_disk = ?, most_lifetime_ms = ? WHERE id = ?",
                  quota.running, quota.cpu_milli, quota.memory, quota.disk, quota.lifetime_ms, id));
  if (changed == 0) return fail(Error::not_found("no team " + quoted(id)));
  return {};
}

}  // namespace caisson::db
