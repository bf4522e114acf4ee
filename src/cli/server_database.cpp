#include "cli/server_database.h"

#include <chrono>

#include "base/paths.h"
#include "cli/table.h"

namespace caisson::cli {

Result<db::Database> open_server_database(const Parsed& parsed) {
  std::string directory = parsed.value("--state-dir");
  if (directory.empty()) {
    if (parsed.has("--state-dir")) return fail(Error::invalid("--state-dir needs a directory"));
    directory = state_directory();
  }
  return db::Database::open(db::database_path(directory));
}

Result<db::Team> team_of(const Parsed& parsed, db::Database& database) {
  db::Teams teams(database);
  auto team =
      teams.find(parsed.has("--team") ? parsed.value("--team") : std::string(db::kDefaultTeam));
  if (team.has_value() || team.error().code() != Code::kNotFound) return team;
  TRY_ASSIGN(const std::vector<db::Team> all, teams.list());
  std::string known;
  for (const db::Team& one : all) known += (known.empty() ? "" : ", ") + one.slug;
  return fail(Error::not_found(team.error().message() + "; there are " + known));
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string age_text(std::optional<std::int64_t> time_ms, std::int64_t now_ms) {
  return time_ms.has_value() ? duration_text(now_ms - *time_ms) + " ago" : "never";
}

}  // namespace caisson::cli
