#include "db/sandboxes.h"

#include <limits>

#include "base/encoding.h"
#include "base/json.h"
#include "base/secret.h"
#include "db/text.h"

namespace caisson::db {
namespace {

constexpr std::size_t kIdLength = 20;

constexpr SqlText kSelect =
    "SELECT id, team_id, template_id, alias, image, host_id, user, workdir, secure, state, "
    "started_ns, end_at_ms, timeout_ms, cpu_milli, memory, disk, metadata, lifecycle, network FROM "
    "sandboxes";

constexpr SqlText kInsert =
    "INSERT INTO sandboxes (id, team_id, template_id, alias, image, host_id, user, workdir, "
    "secure, state, started_ns, end_at_ms, timeout_ms, cpu_milli, memory, disk, metadata, "
    "lifecycle, network) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

std::string_view to_text(SandboxState state) {
  return state == SandboxState::kRunning ? "running" : "paused";
}

SandboxState parse_state(std::string_view text) {
  return text == "paused" ? SandboxState::kPaused : SandboxState::kRunning;
}

std::string to_json(const Metadata& metadata) {
  json::Value::Object members;
  for (const auto& [key, value] : metadata) members.push_back({key, value});
  return json::serialize(json::Value(std::move(members)));
}

Result<Metadata> parse_metadata(std::string_view text) {
  auto value = json::parse(text);
  const json::Value::Object* members = value.has_value() ? value->as_object() : nullptr;
  Metadata metadata;
  bool right = members != nullptr;
  for (std::size_t i = 0; right && i < members->size(); ++i) {
    const std::string* pair_value = (*members)[i].value.as_string();
    right = pair_value != nullptr;
    if (right) metadata.emplace((*members)[i].key, *pair_value);
  }
  if (!right) return fail(Error(Code::kDataLoss, "the database: a sandbox's metadata is damaged"));
  return metadata;
}

Result<SandboxRow> read_row(const Query& row) {
  SandboxRow sandbox = {.id = row.get<std::string>(0),
                        .team_id = row.get<std::string>(1),
                        .template_id = row.get<std::string>(2),
                        .alias = row.get<std::string>(3),
                        .image = row.get<std::string>(4),
                        .host_id = row.get<std::string>(5),
                        .user = row.get<std::string>(6),
                        .workdir = row.get<std::string>(7),
                        .secure = row.get<std::int64_t>(8) != 0,
                        .state = parse_state(row.get<std::string>(9)),
                        .started_ns = row.get<std::int64_t>(10),
                        .end_at_ms = row.get<std::int64_t>(11),
                        .timeout_ms = row.get<std::uint64_t>(12),
                        .cpu_milli = row.get<std::uint64_t>(13),
                        .memory = row.get<std::uint64_t>(14),
                        .disk = row.get<std::uint64_t>(15),
                        .metadata = {},
                        .lifecycle = row.get<std::string>(17),
                        .network = row.get<std::string>(18)};
  TRY_ASSIGN(sandbox.metadata, parse_metadata(row.get<std::string>(16)));
  return sandbox;
}

Status check_size(std::string_view what, std::string_view json,
                  std::size_t most = kMaxSandboxJson) {
  if (json.size() <= most) return {};
  return fail(Error::invalid(std::string(what) + ": found " + std::to_string(json.size()) +
                             " bytes of JSON; allowed are " + std::to_string(most)));
}

// Two keys that are no UTF-8 would be written as the same; SQLite's JSON ends a text at a NUL.
Status check_metadata(const Metadata& metadata) {
  const auto right = [](std::string_view text) { return is_utf8(text) && !text.contains('\0'); };
  for (const auto& [key, value] : metadata) {
    if (right(key) && right(value)) continue;
    return fail(Error::invalid("metadata: found " + quoted(key) + " with " + quoted(value) +
                               "; allowed are texts in UTF-8 without NUL"));
  }
  return {};
}

Error no_sandbox(std::string_view id) {
  return Error::not_found("no sandbox " + quoted(id));
}

Result<SandboxRow> only_row(Query query, std::string_view id) {
  TRY_ASSIGN(const bool found, query.next());
  if (!found) return fail(no_sandbox(id));
  return read_row(query);
}

Status one_changed(const Result<std::int64_t>& changed, std::string_view id) {
  if (!changed.has_value()) return fail(changed.error());
  if (*changed == 0) return fail(no_sandbox(id));
  return {};
}

}  // namespace

std::string new_sandbox_id() {
  return "i" + random_id(kIdLength);
}

Status Sandboxes::allow_one_more(std::string_view team_id,
                                 std::optional<std::uint64_t> most_running) {
  if (!most_running.has_value()) return {};
  TRY_ASSIGN(const std::uint64_t running, count_running(team_id));
  if (running < *most_running) return {};
  return fail(Error::exhausted("the team has " + std::to_string(running) +
                               " running sandboxes; allowed are " + std::to_string(*most_running)));
}

Status Sandboxes::check(const SandboxRow& row) {
  TRY(check_metadata(row.metadata));
  TRY(check_size("metadata", to_json(row.metadata)));
  TRY(check_size("lifecycle", row.lifecycle, kMaxLifecycleJson));
  return check_size("network", row.network);
}

Status Sandboxes::write(const SandboxRow& row, Sql statement) {
  TRY(check(row));
  const std::string metadata = to_json(row.metadata);
  TRY_ASSIGN(const std::int64_t written,
             sqlite_.run(statement, row.id, row.team_id, row.template_id, row.alias, row.image,
                         row.host_id, row.user, row.workdir, row.secure ? 1 : 0, to_text(row.state),
                         row.started_ns, row.end_at_ms, row.timeout_ms, row.cpu_milli, row.memory,
                         row.disk, metadata, row.lifecycle, row.network));
  if (written == 1) return {};
  return fail(Error(Code::kAlreadyExists, "another team has a sandbox " + quoted(row.id)));
}

Status Sandboxes::insert(const SandboxRow& row, std::optional<std::uint64_t> most_running) {
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_));
  TRY(allow_one_more(row.team_id, most_running));
  TRY(write(row, kInsert));
  return transaction.commit();
}

Status Sandboxes::put(const SandboxRow& row) {
  static constexpr auto kPut =
      kInsert +
      " ON CONFLICT (id) DO UPDATE SET template_id = excluded.template_id, alias = excluded.alias, "
      "image = excluded.image, host_id = excluded.host_id, user = excluded.user, workdir = "
      "excluded.workdir, secure = excluded.secure, state = excluded.state, started_ns = "
      "excluded.started_ns, end_at_ms = excluded.end_at_ms, timeout_ms = excluded.timeout_ms, "
      "cpu_milli = excluded.cpu_milli, memory = excluded.memory, disk = excluded.disk, metadata = "
      "excluded.metadata, lifecycle = excluded.lifecycle, network = excluded.network WHERE team_id "
      "= excluded.team_id";
  return write(row, kPut);
}

Status Sandboxes::remove_of_any_team(std::string_view id) {
  TRY(sqlite_.run("DELETE FROM sandboxes WHERE id = ?", id));
  return {};
}

Result<SandboxRow> Sandboxes::find(std::string_view team_id, std::string_view id) {
  static constexpr auto kFind = kSelect + " WHERE id = ? AND team_id = ?";
  TRY_ASSIGN(Query query, sqlite_.query(kFind, id, team_id));
  return only_row(std::move(query), id);
}

Result<SandboxPage> Sandboxes::list(std::string_view team_id, const SandboxFilter& filter) {
  // A wanted pair that the row does not have leaves the row out. json_each() compares keys as they
  // are, whatever characters they have.
  static constexpr auto kFiltered =
      kSelect +
      " WHERE team_id = ?1 AND started_ns >= ?2 AND (?3 IS NULL OR state = ?3)"
      " AND (?4 IS NULL OR template_id = ?4)"
      " AND NOT EXISTS (SELECT 1 FROM json_each(?5) AS wanted WHERE NOT EXISTS"
      " (SELECT 1 FROM json_each(metadata) AS had"
      " WHERE had.key = wanted.key AND had.value = wanted.value))";
  static constexpr auto kNewest =
      kFiltered + " AND (started_ns, id) < (?6, ?7) ORDER BY started_ns DESC, id DESC LIMIT ?8";
  static constexpr auto kOldest =
      kFiltered + " AND (started_ns, id) > (?6, ?7) ORDER BY started_ns, id LIMIT ?8";
  const bool newest = filter.order == Order::kNewestFirst;
  constexpr auto kLowest = std::numeric_limits<std::int64_t>::min();
  constexpr auto kHighest = std::numeric_limits<std::int64_t>::max();
  const SandboxCursor after =
      filter.after.value_or(SandboxCursor{.started_ns = newest ? kHighest : kLowest, .id = ""});
  std::optional<std::string_view> state;
  if (filter.state.has_value()) state = to_text(*filter.state);
  // One more than is wanted says whether there is another page.
  TRY_ASSIGN(Query query,
             sqlite_.query(newest ? Sql(kNewest) : Sql(kOldest), team_id,
                           filter.started_from_ns.value_or(kLowest), state, filter.template_id,
                           to_json(filter.metadata), after.started_ns, after.id,
                           std::int64_t{filter.limit} + 1));
  SandboxPage page;
  for (;;) {
    TRY_ASSIGN(const bool more, query.next());
    if (!more) return page;
    if (page.rows.size() == filter.limit) {
      if (!page.rows.empty()) {
        page.next =
            SandboxCursor{.started_ns = page.rows.back().started_ns, .id = page.rows.back().id};
      }
      return page;
    }
    TRY_ASSIGN(SandboxRow row, read_row(query));
    page.rows.push_back(std::move(row));
  }
}

Result<std::uint64_t> Sandboxes::count_running(std::string_view team_id) {
  TRY_ASSIGN(Query query, sqlite_.query("SELECT count(*) FROM sandboxes WHERE team_id = ? AND "
                                        "state = 'running'",
                                        team_id));
  TRY(query.next());
  return query.get<std::uint64_t>(0);
}

Status Sandboxes::set_end_at(std::string_view team_id, std::string_view id,
                             std::int64_t end_at_ms) {
  return one_changed(sqlite_.run("UPDATE sandboxes SET end_at_ms = ? WHERE id = ? AND team_id = ?",
                                 end_at_ms, id, team_id),
                     id);
}

Status Sandboxes::set_network(std::string_view team_id, std::string_view id,
                              std::string_view network) {
  TRY(check_size("network", network));
  return one_changed(sqlite_.run("UPDATE sandboxes SET network = ? WHERE id = ? AND team_id = ?",
                                 network, id, team_id),
                     id);
}

Status Sandboxes::pause(std::string_view team_id, std::string_view id, std::string_view host_id,
                        std::int64_t now_ms) {
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_));
  TRY_ASSIGN(const SandboxRow row, find(team_id, id));
  if (row.state != SandboxState::kRunning) {
    return fail(Error::precondition("sandbox " + quoted(id) + " is paused already"));
  }
  TRY(sqlite_.run("UPDATE sandboxes SET state = 'paused', host_id = ?, end_at_ms = ? WHERE id = ?",
                  host_id, now_ms, id));
  return transaction.commit();
}

Status Sandboxes::resume(std::string_view team_id, std::string_view id, std::string_view host_id,
                         std::int64_t end_at_ms, std::optional<std::uint64_t> most_running) {
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_));
  TRY_ASSIGN(const SandboxRow row, find(team_id, id));
  if (row.state != SandboxState::kPaused) {
    return fail(Error::precondition("sandbox " + quoted(id) + " is running, not paused"));
  }
  TRY(allow_one_more(team_id, most_running));
  TRY(sqlite_.run("UPDATE sandboxes SET state = 'running', host_id = ?, end_at_ms = ? WHERE id = ?",
                  host_id, end_at_ms, id));
  return transaction.commit();
}

Status Sandboxes::remove(std::string_view team_id, std::string_view id) {
  return one_changed(sqlite_.run("DELETE FROM sandboxes WHERE id = ? AND team_id = ?", id, team_id),
                     id);
}

Result<SandboxRow> Sandboxes::find_of_any_team(std::string_view id) {
  static constexpr auto kFind = kSelect + " WHERE id = ?";
  TRY_ASSIGN(Query query, sqlite_.query(kFind, id));
  return only_row(std::move(query), id);
}

Result<AllSandboxes> Sandboxes::all_of_any_team() {
  static constexpr auto kAll = kSelect + " ORDER BY id";
  TRY_ASSIGN(Query query, sqlite_.query(kAll));
  AllSandboxes all;
  for (;;) {
    TRY_ASSIGN(const bool more, query.next());
    if (!more) return all;
    auto row = read_row(query);
    if (row.has_value()) {
      all.rows.push_back(std::move(*row));
    } else {
      all.damaged.push_back({.id = query.get<std::string>(0),
                             .team_id = query.get<std::string>(1),
                             .host_id = query.get<std::string>(5),
                             .why = row.error().message()});
    }
  }
}

}  // namespace caisson::db
