#include "db/builds.h"

#include <array>
#include <limits>

#include "base/secret.h"
#include "db/template_name.h"
#include "db/text.h"

namespace caisson::db {
namespace {

constexpr std::array<std::string_view, 4> kStatusNames = {"waiting", "building", "ready", "error"};
constexpr std::size_t kMaxTags = 32;

constexpr SqlText kSelect =
    "SELECT builds.id, template_id, status, tags, image, cpu_milli, memory, disk, start_command, "
    "ready_command, failure, failure_step, builds.created_ms, finished_ms FROM builds JOIN "
    "templates ON templates.id = template_id";

BuildStatus parse_status(std::string_view text) {
  for (std::size_t i = 0; i < kStatusNames.size(); ++i) {
    if (kStatusNames[i] == text) return static_cast<BuildStatus>(i);
  }
  return BuildStatus::kError;
}

// No tag has a space.
std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    text += word;
  }
  return text;
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

Build read_build(const Query& row) {
  return {.id = row.get<std::string>(0),
          .template_id = row.get<std::string>(1),
          .status = parse_status(row.get<std::string>(2)),
          .tags = split(row.get<std::string>(3)),
          .image = row.get<std::string>(4),
          .size = {.cpu_milli = row.get<std::uint64_t>(5),
                   .memory = row.get<std::uint64_t>(6),
                   .disk = row.get<std::uint64_t>(7)},
          .start_command = row.get<std::string>(8),
          .ready_command = row.get<std::string>(9),
          .failure = row.get<std::string>(10),
          .failure_step = row.get<std::string>(11),
          .created_ms = row.get<std::int64_t>(12),
          .finished_ms = row.get<std::optional<std::int64_t>>(13)};
}

Error no_build(std::string_view id) {
  return Error::not_found("no build " + quoted(id));
}

struct Progress {
  std::string template_id;
  BuildStatus status;
  std::vector<std::string> tags;
};

Result<Progress> progress_of(Sqlite& sqlite, std::string_view id) {
  TRY_ASSIGN(Query query,
             sqlite.query("SELECT template_id, status, tags FROM builds WHERE id = ?", id));
  TRY_ASSIGN(const bool found, query.next());
  if (!found) return fail(no_build(id));
  return Progress{.template_id = query.get<std::string>(0),
                  .status = parse_status(query.get<std::string>(1)),
                  .tags = split(query.get<std::string>(2))};
}

Error wrong_status(std::string_view id, BuildStatus status) {
  return Error::precondition("build " + quoted(id) + " is " +
                             std::string(kStatusNames[static_cast<std::size_t>(status)]));
}

Result<Progress> unfinished(Sqlite& sqlite, std::string_view id) {
  TRY_ASSIGN(Progress progress, progress_of(sqlite, id));
  if (progress.status == BuildStatus::kReady || progress.status == BuildStatus::kError) {
    return fail(wrong_status(id, progress.status));
  }
  return progress;
}

// What a build has of its log.
struct LogLength {
  std::int64_t entries = 0, bytes = 0;
};

Result<LogLength> log_length(Sqlite& sqlite, std::string_view id) {
  TRY_ASSIGN(Query query,
             sqlite.query("SELECT log_bytes, (SELECT coalesce(max(number) + 1, 0) FROM build_logs "
                          "WHERE build_id = builds.id) FROM builds WHERE id = ?",
                          id));
  TRY_ASSIGN(const bool found, query.next());
  if (!found) return fail(Error::precondition("no build " + quoted(id)));
  return LogLength{.entries = query.get<std::int64_t>(1), .bytes = query.get<std::int64_t>(0)};
}

Result<std::vector<LogEntry>> read_entries(Query query) {
  std::vector<LogEntry> entries;
  for (;;) {
    TRY_ASSIGN(const bool more, query.next());
    if (!more) return entries;
    entries.push_back({.time_ms = query.get<std::int64_t>(0),
                       .level = static_cast<LogLevel>(query.get<std::int64_t>(1)),
                       .step = query.get<std::string>(2),
                       .message = query.get<std::string>(3)});
  }
}

}  // namespace

Result<Build> Builds::add(std::string_view team_id, std::string_view template_id,
                          const std::vector<std::string>& tags, const BuildSize& size,
                          std::int64_t now_ms) {
  for (const std::string& tag : tags) TRY(check_template_tag(tag));
  if (tags.size() > kMaxTags) {
    return fail(Error::invalid("tags: found " + std::to_string(tags.size()) + "; allowed are " +
                               std::to_string(kMaxTags) + " at most"));
  }
  Build build = {.id = random_uuid(),
                 .template_id = std::string(template_id),
                 .tags = tags,
                 .size = size,
                 .created_ms = now_ms};
  TRY_ASSIGN(const std::int64_t made,
             sqlite_.run("INSERT INTO builds (id, template_id, status, tags, image, cpu_milli, "
                         "memory, disk, start_command, ready_command, failure, failure_step, "
                         "created_ms) SELECT ?, id, 'waiting', ?, '', ?, ?, ?, '', '', '', '', ? "
                         "FROM templates WHERE id = ? AND team_id = ?",
                         build.id, join(tags), size.cpu_milli, size.memory, size.disk, now_ms,
                         template_id, team_id));
  if (made == 0) return fail(Error::not_found("no template " + quoted(template_id)));
  return build;
}

Result<Build> Builds::find(std::string_view team_id, std::string_view template_id,
                           std::string_view id) {
  static constexpr auto kFind =
      kSelect + " WHERE builds.id = ? AND template_id = ? AND team_id = ?";
  TRY_ASSIGN(Query query, sqlite_.query(kFind, id, template_id, team_id));
  TRY_ASSIGN(const bool found, query.next());
  if (!found) return fail(no_build(id));
  return read_build(query);
}

Result<std::vector<Build>> Builds::list(std::string_view team_id, std::string_view template_id,
                                        std::uint32_t limit) {
  static constexpr auto kList =
      kSelect +
      " WHERE template_id = ? AND team_id = ? ORDER BY builds.created_ms DESC, builds.id LIMIT ?";
  TRY_ASSIGN(Query query, sqlite_.query(kList, template_id, team_id, limit));
  std::vector<Build> builds;
  for (;;) {
    TRY_ASSIGN(const bool more, query.next());
    if (!more) return builds;
    builds.push_back(read_build(query));
  }
}

Result<std::uint64_t> Builds::count_unfinished(std::string_view team_id,
                                               std::int64_t waiting_since_ms) {
  TRY_ASSIGN(Query query,
             sqlite_.query("SELECT count(*) FROM builds JOIN templates ON templates.id = "
                           "template_id WHERE team_id = ? AND (status = 'building' OR (status = "
                           "'waiting' AND builds.created_ms >= ?))",
                           team_id, waiting_since_ms));
  TRY(query.next());
  return query.get<std::uint64_t>(0);
}

Result<BuildStatus> Builds::status(std::string_view id) {
  TRY_ASSIGN(const Progress progress, progress_of(sqlite_, id));
  return progress.status;
}

Result<std::vector<std::string>> Builds::building() {
  TRY_ASSIGN(Query query,
             sqlite_.query("SELECT id FROM builds WHERE status = 'building' ORDER BY id"));
  std::vector<std::string> ids;
  for (;;) {
    TRY_ASSIGN(const bool more, query.next());
    if (!more) return ids;
    ids.push_back(query.get<std::string>(0));
  }
}

Status Builds::start(std::string_view id, std::string_view start_command,
                     std::string_view ready_command) {
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_));
  TRY_ASSIGN(const Progress progress, progress_of(sqlite_, id));
  if (progress.status != BuildStatus::kWaiting) {
    return fail(wrong_status(id, progress.status));
  }
  TRY(
      sqlite_.run("UPDATE builds SET status = 'building', start_command = ?, ready_command = ? "
                  "WHERE id = ?",
                  start_command, ready_command, id));
  return transaction.commit();
}

Status Builds::finish(std::string_view id, std::string_view image, std::int64_t now_ms) {
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_));
  TRY_ASSIGN(const Progress progress, unfinished(sqlite_, id));
  TRY(sqlite_.run("UPDATE builds SET status = 'ready', image = ?, finished_ms = ? WHERE id = ?",
                  image, now_ms, id));
  for (const std::string& tag : progress.tags) {
    TRY(sqlite_.run("INSERT OR REPLACE INTO template_tags VALUES (?, ?, ?, ?)",
                    progress.template_id, tag, id, now_ms));
  }
  TRY(sqlite_.run("UPDATE templates SET updated_ms = ? WHERE id = ?", now_ms,
                  progress.template_id));
  return transaction.commit();
}

Status Builds::set_failed(std::string_view id, std::string_view step, std::string_view failure,
                          std::int64_t now_ms) {
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_));
  TRY(unfinished(sqlite_, id));
  TRY(
      sqlite_.run("UPDATE builds SET status = 'error', failure = ?, failure_step = ?, "
                  "finished_ms = ? WHERE id = ?",
                  cut(failure, kMaxLogMessage), step, now_ms, id));
  return transaction.commit();
}

Status Builds::fail_unfinished(std::string_view failure, std::int64_t now_ms) {
  TRY(
      sqlite_.run("UPDATE builds SET status = 'error', failure = ?, finished_ms = ? "
                  "WHERE status IN ('waiting', 'building')",
                  failure, now_ms));
  return {};
}

Status Builds::append_logs(std::string_view id, std::span<const LogEntry> entries) {
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_));
  TRY_ASSIGN(LogLength length, log_length(sqlite_, id));
  const LogLength before = length;
  for (const LogEntry& entry : entries) {
    if (length.entries > kMaxLogEntries || length.bytes > kMaxLogBytes) break;
    std::string_view message = cut(entry.message, kMaxLogMessage);
    const auto size = static_cast<std::int64_t>(message.size());
    if (length.entries == kMaxLogEntries || length.bytes + size > kMaxLogBytes) {
      message = "what follows is left out: the log is too long";
      length.bytes = kMaxLogBytes + 1;  // nothing follows, however short
    } else {
      length.bytes += size;
    }
    TRY(sqlite_.run("INSERT INTO build_logs VALUES (?, ?, ?, ?, ?, ?)", id, length.entries,
                    entry.time_ms, static_cast<int>(entry.level), entry.step, message));
    ++length.entries;
  }
  if (length.bytes != before.bytes)
    TRY(sqlite_.run("UPDATE builds SET log_bytes = ? WHERE id = ?", length.bytes, id));
  return transaction.commit();
}

Result<std::vector<OutdatedBuild>> Builds::outdated(const BuildRetention& retention,
                                                    std::int64_t now_ms, std::uint32_t limit) {
  // A tag may be given to a build again as long as it is there; what one means is kept.
  static constexpr SqlText kOutdated =
      "SELECT id, 0, created_ms FROM (SELECT id, created_ms, row_number() OVER (PARTITION BY "
      "template_id ORDER BY created_ms DESC, id) AS place FROM builds WHERE (status IN ('ready', "
      "'error') OR (status = 'waiting' AND created_ms < ?1)) AND id NOT IN (SELECT build_id FROM "
      "template_tags)) WHERE place > ?2 OR created_ms < ?3 UNION ALL SELECT id, 1, created_ms FROM "
      "builds WHERE created_ms < ?3 AND log_bytes > 0 AND status <> 'building' AND id IN (SELECT "
      "build_id FROM template_tags) ORDER BY 3 LIMIT ?4";
  constexpr std::int64_t kDay = 24LL * 3600 * 1000;
  const std::int64_t oldest = retention.kept_ms.has_value()
                                  ? now_ms - *retention.kept_ms
                                  : std::numeric_limits<std::int64_t>::min();
  TRY_ASSIGN(Query query,
             sqlite_.query(kOutdated, now_ms - kDay, retention.per_template, oldest, limit));
  std::vector<OutdatedBuild> found;
  for (;;) {
    TRY_ASSIGN(const bool more, query.next());
    if (!more) return found;
    found.push_back({.id = query.get<std::string>(0),
                     .what = query.get<std::int64_t>(1) == 0 ? OutdatedBuild::What::kAll
                                                             : OutdatedBuild::What::kLog});
  }
}

Result<bool> Builds::remove_some(const OutdatedBuild& outdated, std::uint32_t entries) {
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_));
  if (outdated.what == OutdatedBuild::What::kAll) {
    TRY_ASSIGN(Query query, sqlite_.query("SELECT 1 FROM builds WHERE id = ?1 AND (status = "
                                          "'building' OR id IN (SELECT build_id FROM "
                                          "template_tags WHERE build_id = ?1))",
                                          outdated.id));
    TRY_ASSIGN(const bool needed, query.next());
    if (needed) return true;
  }
  TRY_ASSIGN(const std::int64_t removed,
             sqlite_.run("DELETE FROM build_logs WHERE build_id = ?1 AND number IN (SELECT number "
                         "FROM build_logs WHERE build_id = ?1 ORDER BY number LIMIT ?2)",
                         outdated.id, entries));
  const bool done = removed < static_cast<std::int64_t>(entries);
  if (done) {
    const bool all = outdated.what == OutdatedBuild::What::kAll;
    TRY(sqlite_.run(all ? Sql("DELETE FROM builds WHERE id = ?")
                        : Sql("UPDATE builds SET log_bytes = 0 WHERE id = ?"),
                    outdated.id));
  }
  TRY(transaction.commit());
  return done;
}

Result<std::vector<LogEntry>> Builds::logs(std::string_view id, std::uint32_t offset,
                                           std::uint32_t limit, LogLevel least) {
  TRY_ASSIGN(Query query,
             sqlite_.query("SELECT time_ms, level, step, message FROM build_logs WHERE build_id = "
                           "? AND level >= ? ORDER BY number LIMIT ? OFFSET ?",
                           id, static_cast<int>(least), limit, offset));
  return read_entries(std::move(query));
}

Result<std::vector<LogEntry>> Builds::logs(std::string_view id, const LogWindow& window) {
  static constexpr SqlText kEntries =
      "SELECT time_ms, level, step, message FROM build_logs WHERE build_id = ? AND level >= ? AND ";
  static constexpr auto kForward = kEntries + "time_ms >= ? ORDER BY number LIMIT ?";
  static constexpr auto kBackward = kEntries + "time_ms <= ? ORDER BY number DESC LIMIT ?";
  const int least = static_cast<int>(window.least);
  if (window.direction == LogWindow::Direction::kForward) {
    TRY_ASSIGN(Query query,
               sqlite_.query(kForward, id, least, window.time_ms.value_or(0), window.limit));
    return read_entries(std::move(query));
  }
  constexpr std::int64_t kEnd = std::numeric_limits<std::int64_t>::max();
  TRY_ASSIGN(Query query,
             sqlite_.query(kBackward, id, least, window.time_ms.value_or(kEnd), window.limit));
  return read_entries(std::move(query));
}

}  // namespace caisson::db
