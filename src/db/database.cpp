#include "db/database.h"

#include <chrono>

#include "base/fd.h"
#include "db/private_file.h"
#include "db/schema.h"
#include "db/teams.h"

namespace caisson::db {
namespace {

// "Csn1" in the file's header: what `file` and a second look tell our databases by.
constexpr std::int64_t kApplicationId = 0x43736e31;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

Result<std::int64_t> read_number(Sqlite& sqlite, Sql sql) {
  TRY_ASSIGN(Query query, sqlite.query(sql));
  TRY(query.next());
  return query.get<std::int64_t>(0);
}

Status set_up_connection(Sqlite& sqlite) {
  TRY_ASSIGN(Query query, sqlite.query("PRAGMA journal_mode = WAL"));
  TRY(query.next());
  if (const auto mode = query.get<std::string>(0); mode != "wal") {
    return fail(
        Error::precondition("the file system cannot hold a database that is written ahead "
                            "(its journal mode stays " +
                            mode + ")"));
  }
  TRY(sqlite.run_script("PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON"));
  return {};
}

// A file of another program is left as it is.
Status check_application(Sqlite& sqlite) {
  std::int64_t id = 0, tables = 0;
  {
    // Both of one moment: somebody else may be setting it up.
    TRY(sqlite.run_script("BEGIN"));
    const auto read_both = [&]() -> Status {
      TRY_ASSIGN(tables, read_number(sqlite, "SELECT count(*) FROM sqlite_schema"));
      TRY_ASSIGN(id, read_number(sqlite, "PRAGMA application_id"));
      return {};
    };
    const Status read = read_both();
    TRY(sqlite.run_script("COMMIT"));
    TRY(read);
  }
  if (id == kApplicationId) return {};
  if (id == 0 && tables == 0) {
    return sqlite.run_script("PRAGMA application_id = " + std::to_string(kApplicationId));
  }
  return fail(Error(Code::kDataLoss, "the database is not one of caisson's"));
}

Result<Sqlite> open_current(const std::string& path) {
  TRY_ASSIGN(Sqlite sqlite, Sqlite::open(path));
  TRY(check_application(sqlite));
  TRY(set_up_connection(sqlite));
  TRY(migrate(sqlite, schema_steps()));
  return sqlite;
}

Status ensure_default_team(Database& database) {
  Teams teams(database);
  auto found = teams.find(kDefaultTeam);
  if (found.has_value() || found.error().code() != Code::kNotFound) {
    if (!found.has_value()) return fail(std::move(found).error());
    return {};
  }
  auto made = teams.create(kDefaultTeam, "Default", Quota(), now_ms());
  // Another process that opens it for the first time may have been faster.
  if (!made.has_value() && made.error().code() != Code::kAlreadyExists) {
    return fail(std::move(made).error());
  }
  return {};
}

}  // namespace

Result<Database> Database::open(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash + 1 == path.size()) {
    return fail(Error::invalid("'" + path + "' names no file in a folder"));
  }
  TRY_ASSIGN(const Fd folder, open_private_directory(path.substr(0, slash)));
  TRY(ensure_private_file(folder.get(), path.substr(slash + 1)));
  auto sqlite = open_current(path);
  if (!sqlite.has_value()) return fail(std::move(sqlite).error().with(path));
  Database database(std::move(*sqlite));
  if (auto done = ensure_default_team(database); !done.has_value()) {
    return fail(std::move(done).error().with(path));
  }
  return database;
}

std::string server_directory(const std::string& state_directory) {
  return state_directory + "/server";
}

std::string database_path(const std::string& state_directory) {
  return server_directory(state_directory) + "/caisson.db";
}

}  // namespace caisson::db
