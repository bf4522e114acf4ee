#include "db/sandbox_events.h"

#include <set>

#include "base/json.h"
#include "db/text.h"

namespace caisson::db {
namespace {

std::string to_json(const std::map<std::string, std::string>& fields) {
  json::Value::Object members;
  for (const auto& [key, value] : fields) {
    members.push_back(
        {std::string(cut(key, kMaxEventText)), std::string(cut(value, kMaxEventText))});
  }
  return json::serialize(json::Value(std::move(members)));
}

// What is not as we write it is left out: a log is read as far as it can be.
std::map<std::string, std::string> parse_fields(std::string_view text) {
  std::map<std::string, std::string> fields;
  const auto value = json::parse(text);
  const json::Value::Object* members = value.has_value() ? value->as_object() : nullptr;
  if (members == nullptr) return fields;
  for (const json::Member& member : *members) {
    if (const std::string* field = member.value.as_string()) fields.emplace(member.key, *field);
  }
  return fields;
}

Status trim(Sqlite& sqlite, const std::set<std::string_view>& changed) {
  for (const std::string_view id : changed) {
    TRY(
        sqlite.run("DELETE FROM sandbox_events WHERE sandbox_id = ?1 AND number <= (SELECT number "
                   "FROM sandbox_events WHERE sandbox_id = ?1 ORDER BY number DESC LIMIT 1 OFFSET "
                   "?2)",
                   id, kMaxSandboxEvents));
  }
  // Numbers have gaps, so that there are fewer than this; finding it out costs no counting.
  TRY(
      sqlite.run("DELETE FROM sandbox_events WHERE number <= (SELECT max(number) FROM "
                 "sandbox_events) - ?",
                 kMaxEvents));
  return {};
}

}  // namespace

Status SandboxEvents::append(std::span<const SandboxEvent> events) {
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_));
  std::set<std::string_view> changed;
  for (const SandboxEvent& event : events) {
    TRY(sqlite_.run(
        "INSERT INTO sandbox_events (sandbox_id, team_id, time_ms, level, message, "
        "fields) VALUES (?, ?, ?, ?, ?, ?)",
        event.sandbox_id, event.team_id, event.time_ms, static_cast<std::int64_t>(event.level),
        cut(event.message, kMaxEventText), to_json(event.fields)));
    changed.insert(event.sandbox_id);
  }
  TRY(trim(sqlite_, changed));
  return transaction.commit();
}

Result<std::vector<SandboxEvent>> SandboxEvents::list(std::string_view team_id,
                                                      std::string_view sandbox_id,
                                                      const EventFilter& filter) {
  static constexpr SqlText kKnown =
      "SELECT 1 FROM sandbox_events WHERE sandbox_id = ? AND team_id = ? LIMIT 1";
  static constexpr SqlText kSelect =
      "SELECT time_ms, level, message, fields FROM sandbox_events WHERE sandbox_id = ? AND team_id "
      "= ? AND time_ms >= ? AND time_ms <= ? AND level >= ? AND instr(message, ?) > 0 ORDER BY "
      "number ";
  static constexpr auto kOldest = kSelect + "LIMIT ?";
  static constexpr auto kNewest = kSelect + "DESC LIMIT ?";
  TRY_ASSIGN(Query known, sqlite_.query(kKnown, sandbox_id, team_id));
  TRY_ASSIGN(const bool found, known.next());
  if (!found) return fail(Error::not_found("no sandbox " + quoted(sandbox_id)));
  const bool newest = filter.order == EventFilter::Order::kNewestFirst;
  TRY_ASSIGN(Query query,
             sqlite_.query(newest ? Sql(kNewest) : Sql(kOldest), sandbox_id, team_id,
                           filter.from_ms, filter.to_ms, static_cast<std::int64_t>(filter.least),
                           filter.text, std::int64_t{filter.limit}));
  std::vector<SandboxEvent> events;
  for (;;) {
    TRY_ASSIGN(const bool more, query.next());
    if (!more) return events;
    events.push_back({.sandbox_id = std::string(sandbox_id),
                      .team_id = std::string(team_id),
                      .time_ms = query.get<std::int64_t>(0),
                      .level = static_cast<LogLevel>(query.get<std::int64_t>(1)),
                      .message = query.get<std::string>(2),
                      .fields = parse_fields(query.get<std::string>(3))});
  }
}

}  // namespace caisson::db
