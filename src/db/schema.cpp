#include "db/schema.h"

#include <array>

namespace caisson::db {
namespace {

// Times are UTC: _ms milliseconds, _ns nanoseconds since 1970. A limit that is NULL is no limit.
// STRICT, so that a column holds what it says.
constexpr std::string_view kFirst = R"sql(
CREATE TABLE teams (
  id TEXT PRIMARY KEY,
  slug TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  most_running INTEGER,
  most_cpu_milli INTEGER,
  most_memory INTEGER,
  most_disk INTEGER,
  most_lifetime_ms INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams (id),
  name TEXT NOT NULL,
  hash BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
  mask TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  last_used_ms INTEGER,
  revoked_ms INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX api_keys_of_team ON api_keys (team_id, created_ms);

CREATE TABLE sandboxes (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams (id),
  template_id TEXT NOT NULL,
  alias TEXT NOT NULL,
  image TEXT NOT NULL,
  host_id TEXT NOT NULL,
  user TEXT NOT NULL,
  workdir TEXT NOT NULL,
  secure INTEGER NOT NULL CHECK (secure IN (0, 1)),
  state TEXT NOT NULL CHECK (state IN ('running', 'paused')),
  started_ns INTEGER NOT NULL,
  end_at_ms INTEGER NOT NULL,
  timeout_ms INTEGER NOT NULL,
  cpu_milli INTEGER NOT NULL,
  memory INTEGER NOT NULL,
  disk INTEGER NOT NULL,
  metadata TEXT NOT NULL,
  lifecycle TEXT NOT NULL,
  network TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX sandboxes_by_start ON sandboxes (team_id, started_ns, id);

-- Where source_sandbox is given, the template is a snapshot of that sandbox.
CREATE TABLE templates (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams (id),
  source_sandbox TEXT,
  created_ms INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX templates_by_age ON templates (team_id, created_ms, id);

CREATE TABLE template_names (
  team_id TEXT NOT NULL REFERENCES teams (id),
  name TEXT NOT NULL,
  template_id TEXT NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
  PRIMARY KEY (team_id, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX names_of_template ON template_names (template_id);

CREATE TABLE builds (
  id TEXT PRIMARY KEY,
  template_id TEXT NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
  status TEXT NOT NULL CHECK (status IN ('waiting', 'building', 'ready', 'error')),
  tags TEXT NOT NULL,
  image TEXT NOT NULL,
  cpu_milli INTEGER NOT NULL,
  memory INTEGER NOT NULL,
  disk INTEGER NOT NULL,
  start_command TEXT NOT NULL,
  ready_command TEXT NOT NULL,
  failure TEXT NOT NULL,
  failure_step TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  finished_ms INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX builds_of_template ON builds (template_id, created_ms);
CREATE INDEX builds_of_image ON builds (image);

CREATE TABLE template_tags (
  template_id TEXT NOT NULL REFERENCES templates (id) ON DELETE CASCADE,
  tag TEXT NOT NULL,
  build_id TEXT NOT NULL REFERENCES builds (id) ON DELETE CASCADE,
  set_ms INTEGER NOT NULL,
  PRIMARY KEY (template_id, tag)
) STRICT, WITHOUT ROWID;
CREATE INDEX tags_of_build ON template_tags (build_id);

CREATE TABLE build_logs (
  build_id TEXT NOT NULL REFERENCES builds (id) ON DELETE CASCADE,
  number INTEGER NOT NULL,
  time_ms INTEGER NOT NULL,
  level INTEGER NOT NULL CHECK (level BETWEEN 0 AND 3),
  step TEXT NOT NULL,
  message TEXT NOT NULL,
  PRIMARY KEY (build_id, number)
) STRICT, WITHOUT ROWID;
)sql";

// The log of each sandbox's life; entries of sandboxes that have ended stay for a while.
constexpr std::string_view kSandboxEvents = R"sql(
CREATE TABLE sandbox_events (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  sandbox_id TEXT NOT NULL,
  team_id TEXT NOT NULL REFERENCES teams (id),
  time_ms INTEGER NOT NULL,
  level INTEGER NOT NULL CHECK (level BETWEEN 0 AND 3),
  message TEXT NOT NULL,
  fields TEXT NOT NULL
) STRICT;
CREATE INDEX events_of_sandbox ON sandbox_events (sandbox_id, number);
)sql";

// A public template may be used, and not changed, by every team.
constexpr std::string_view kPublicTemplates = R"sql(
ALTER TABLE templates ADD COLUMN public INTEGER NOT NULL DEFAULT 0 CHECK (public IN (0, 1));
)sql";

// What a snapshot's sandboxes get beside its files, where there is more to say than builds have:
// JSON of who serves them.
constexpr std::string_view kSnapshotShapes = R"sql(
CREATE TABLE snapshot_shapes (
  template_id TEXT PRIMARY KEY REFERENCES templates (id) ON DELETE CASCADE,
  shape TEXT NOT NULL
) STRICT, WITHOUT ROWID;
)sql";

// How long a build's log is, so that it can be bounded without reading it; and old ones are found.
constexpr std::string_view kBuildLogs = R"sql(
ALTER TABLE builds ADD COLUMN log_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE builds SET log_bytes = (SELECT coalesce(sum(length(CAST(message AS BLOB))), 0)
  FROM build_logs WHERE build_id = builds.id);
CREATE INDEX builds_by_age ON builds (created_ms);
)sql";

// What teams keep with the server; values as the server has sealed them.
constexpr std::string_view kSecrets = R"sql(
CREATE TABLE secrets (
  id TEXT PRIMARY KEY,
  team_id TEXT NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  version INTEGER NOT NULL,
  metadata TEXT NOT NULL,
  sealed TEXT NOT NULL,
  created_ms INTEGER NOT NULL,
  updated_ms INTEGER NOT NULL,
  UNIQUE (team_id, name)
) STRICT, WITHOUT ROWID;
)sql";

constexpr std::array<std::string_view, 6> kSteps = {
    kFirst, kSandboxEvents, kPublicTemplates, kSnapshotShapes, kBuildLogs, kSecrets};

Result<std::int64_t> user_version(Sqlite& sqlite) {
  TRY_ASSIGN(Query query, sqlite.query("PRAGMA user_version"));
  TRY(query.next());
  return query.get<std::int64_t>(0);
}

}  // namespace

std::span<const std::string_view> schema_steps() {
  return kSteps;
}

Status migrate(Sqlite& sqlite, std::span<const std::string_view> steps) {
  const auto last = static_cast<std::int64_t>(steps.size());
  // What the usual start finds needs no lock.
  TRY_ASSIGN(std::int64_t version, user_version(sqlite));
  if (version == last) return {};
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite, Durability::kAtOnce));
  // Another process may have been faster.
  TRY_ASSIGN(version, user_version(sqlite));
  if (version < 0 || version > last) {
    return fail(Error::precondition("the database is of version " + std::to_string(version) +
                                    ", which a newer caisson made; this one knows versions up to " +
                                    std::to_string(last)));
  }
  for (; version < last; ++version) {
    auto done = sqlite.run_script(std::string(steps[static_cast<std::size_t>(version)]));
    if (!done.has_value()) {
      return fail(std::move(done).error().with("version " + std::to_string(version + 1)));
    }
  }
  TRY(sqlite.run_script("PRAGMA user_version = " + std::to_string(last)));
  return transaction.commit();
}

}  // namespace caisson::db
