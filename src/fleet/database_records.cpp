#include "fleet/database_records.h"

#include <utility>

#include "base/json.h"
#include "fleet/recipe.h"

namespace caisson::fleet {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

std::int64_t ms_of(WallClock::time_point time) {
  return duration_cast<milliseconds>(time.time_since_epoch()).count();
}

// One that no spec can say is left to the columns.
std::optional<json::Value> said(const Recipe& recipe) {
  auto text = recipe_json(recipe);
  return text.has_value() ? std::optional(std::move(*text)) : std::nullopt;
}

// `recipe`: what said() makes of the record's.
json::Value lifecycle_of(const Record& record, std::optional<json::Value> recipe) {
  const SandboxView& view = record.view;
  json::Value value = json::Value::object();
  value.set("pauses", view.on_timeout == NewSandbox::OnTimeout::kPause)
      .set("keepsFiles", view.on_timeout_keeps == Keep::kFiles)
      .set("resumes", view.auto_resume)
      .set("pausedKeepsFiles", view.paused_keeps == Keep::kFiles)
      .set("publicTraffic", view.public_traffic)
      .set("maskRequestHost", view.mask_request_host);
  if (recipe.has_value()) value.set("recipe", std::move(*recipe));
  if (!record.start.command.empty()) value.set("start", start_json(record.start));
  if (!record.keys.empty()) value.set("keys", record.keys).set("secrets", record.secrets);
  return value;
}

Result<bool> truth(const json::Value& value, std::string_view key) {
  const json::Value* found = value.find(key);
  if (found == nullptr || found->as_bool() == nullptr)
    return fail(Error::invalid("lifecycle." + std::string(key) + ": found no truth value"));
  return *found->as_bool();
}

Result<std::string> text(const json::Value& value, std::string_view key) {
  const json::Value* found = value.find(key);
  if (found == nullptr || found->as_string() == nullptr)
    return fail(Error::invalid("lifecycle." + std::string(key) + ": found no text"));
  return *found->as_string();
}

// Of a row of an earlier version, which has only the most important: 0 is unlimited.
Recipe recipe_of_columns(const db::SandboxRow& row) {
  const auto limit = [](std::uint64_t number) {
    return number == 0 ? policy::LimitValue() : policy::LimitValue(number);
  };
  Recipe recipe{.image = row.image};
  recipe.cpu_milli = limit(row.cpu_milli);
  recipe.memory_bytes = limit(row.memory);
  recipe.disk_bytes = limit(row.disk);
  return recipe;
}

db::SandboxRow row_with(const Record& record, std::optional<json::Value> recipe) {
  const SandboxView& view = record.view;
  return {.id = view.id,
          .team_id = record.team,
          .template_id = view.template_id,
          .alias = view.alias,
          .image = record.image,
          .host_id = record.host_id,
          .user = record.user,
          .workdir = record.workdir,
          .secure = record.secure,
          .state =
              view.state == State::kPaused ? db::SandboxState::kPaused : db::SandboxState::kRunning,
          .started_ns = duration_cast<nanoseconds>(view.started.time_since_epoch()).count(),
          .end_at_ms = ms_of(view.end),
          .timeout_ms = static_cast<std::uint64_t>(milliseconds(record.timeout).count()),
          .cpu_milli = record.recipe.cpu_milli.value_or(0),
          .memory = record.recipe.memory_bytes.value_or(0),
          .disk = record.recipe.disk_bytes.value_or(0),
          .metadata = view.metadata,
          .lifecycle = json::serialize(lifecycle_of(record, std::move(recipe))),
          .network = view.network};
}

}  // namespace

db::SandboxRow row_of(const Record& record) {
  return row_with(record, said(record.recipe));
}

Result<Record> record_of(const db::SandboxRow& row) {
  TRY_ASSIGN(const json::Value lifecycle, json::parse(row.lifecycle));
  Record record{.team = row.team_id,
                .image = row.image,
                .host_id = row.host_id,
                .user = row.user,
                .workdir = row.workdir,
                .secure = row.secure};
  record.recipe = recipe_of_columns(row);
  if (const json::Value* recipe = lifecycle.find("recipe"); recipe != nullptr) {
    // What cannot be read is of another version, and its sandbox lives on. What is made like it
    // gets no rights that it may not have had.
    auto read = parse_recipe(*recipe);
    if (read.has_value())
      record.recipe = std::move(*read);
    else
      record.recipe.privileges = policy::Privileges::kNone;
  }
  // Rows of an earlier version have none, as if their templates started nothing.
  if (const json::Value* start = lifecycle.find("start"); start != nullptr) {
    TRY_ASSIGN(record.start, parse_start(*start));
  }
  if (lifecycle.find("keys") != nullptr) {
    TRY_ASSIGN(record.keys, text(lifecycle, "keys"));
    TRY_ASSIGN(record.secrets, text(lifecycle, "secrets"));
  }
  record.timeout = duration_cast<seconds>(milliseconds(row.timeout_ms));
  SandboxView& view = record.view;
  view.id = row.id;
  view.template_id = row.template_id;
  view.alias = row.alias;
  view.state = row.state == db::SandboxState::kPaused ? State::kPaused : State::kRunning;
  view.started =
      WallClock::time_point(duration_cast<WallClock::duration>(nanoseconds(row.started_ns)));
  view.end = WallClock::time_point(duration_cast<WallClock::duration>(milliseconds(row.end_at_ms)));
  view.cpus = static_cast<std::uint32_t>((row.cpu_milli + 999) / 1000);
  view.memory_mib = row.memory >> 20;
  view.disk_mib = row.disk >> 20;
  view.metadata = row.metadata;
  view.network = row.network;
  view.has_network = !record.recipe.network.empty();
  TRY_ASSIGN(const bool pauses, truth(lifecycle, "pauses"));
  view.on_timeout = pauses ? NewSandbox::OnTimeout::kPause : NewSandbox::OnTimeout::kKill;
  TRY_ASSIGN(const bool files, truth(lifecycle, "keepsFiles"));
  view.on_timeout_keeps = files ? Keep::kFiles : Keep::kMemory;
  TRY_ASSIGN(view.auto_resume, truth(lifecycle, "resumes"));
  // Rows of an earlier version have none: they kept the memory.
  if (lifecycle.find("pausedKeepsFiles") != nullptr) {
    TRY_ASSIGN(const bool kept, truth(lifecycle, "pausedKeepsFiles"));
    view.paused_keeps = kept ? Keep::kFiles : Keep::kMemory;
  }
  TRY_ASSIGN(view.public_traffic, truth(lifecycle, "publicTraffic"));
  TRY_ASSIGN(view.mask_request_host, text(lifecycle, "maskRequestHost"));
  return record;
}

db::SandboxRow DatabaseRecords::row(const Record& record) const {
  if (!last_.has_value() || last_->recipe != record.recipe)
    last_ = Known{record.recipe, said(record.recipe)};
  return row_with(record, last_->said);
}

Status DatabaseRecords::check(const Record& record) const {
  TRY(db::Variables::check(record.env));
  return db::Sandboxes::check(row(record));
}

io::Async<Status> DatabaseRecords::put(Record record) {
  auto work = [variables = variables_, row = row(record),
               env = std::move(record.env)](db::Database& database) -> Status {
    TRY(variables->put(row.id, env));
    return db::Sandboxes(database).put(row);
  };
  co_return co_await database_->with(std::move(work));
}

io::Async<Status> DatabaseRecords::remove(std::string id) {
  auto work = [variables = variables_, id](db::Database& database) -> Status {
    TRY(variables->remove(id));
    return db::Sandboxes(database).remove_of_any_team(id);
  };
  co_return co_await database_->with(std::move(work));
}

io::Async<Result<AllRecords>> DatabaseRecords::all() {
  auto work = [variables = variables_](db::Database& database) -> Result<AllRecords> {
    db::Sandboxes sandboxes(database);
    TRY_ASSIGN(const db::AllSandboxes found, sandboxes.all_of_any_team());
    AllRecords all;
    std::vector<std::string> ids;
    for (const db::DamagedSandbox& one : found.damaged) {
      ids.push_back(one.id);
      all.damaged.push_back(
          {.team = one.team_id, .id = one.id, .host_id = one.host_id, .why = one.why});
    }
    for (const db::SandboxRow& row : found.rows) {
      ids.push_back(row.id);
      auto record = record_of(row);
      if (!record.has_value()) {
        all.damaged.push_back({.team = row.team_id,
                               .id = row.id,
                               .host_id = row.host_id,
                               .why = record.error().message()});
        continue;
      }
      // Without them it still runs, and what was started goes on.
      record->env = variables->get(row.id).value_or(db::Variables::Map());
      all.records.push_back(std::move(*record));
    }
    TRY(variables->keep_only(ids));
    return all;
  };
  co_return co_await database_->with(std::move(work));
}

io::Async<Status> DatabaseRecords::add_events(std::vector<Noted> events) {
  auto work = [noted = std::move(events)](db::Database& database) -> Status {
    std::vector<db::SandboxEvent> rows;
    for (const Noted& one : noted) {
      rows.push_back({.sandbox_id = one.sandbox,
                      .team_id = one.team,
                      .time_ms = ms_of(one.event.time),
                      .level = static_cast<db::LogLevel>(one.event.level),
                      .message = one.event.message,
                      .fields = one.event.fields});
    }
    return db::SandboxEvents(database).append(rows);
  };
  co_return co_await database_->with(std::move(work));
}

io::Async<Result<std::vector<Event>>> DatabaseRecords::events(std::string team, std::string id,
                                                              EventQuery query) {
  auto work = [team, id, query](db::Database& database) -> Result<std::vector<Event>> {
    db::EventFilter filter{
        .least = static_cast<db::LogLevel>(query.least), .text = query.text, .limit = query.limit};
    if (query.from.has_value()) filter.from_ms = ms_of(*query.from);
    if (query.to.has_value()) filter.to_ms = ms_of(*query.to);
    if (query.order == EventQuery::Order::kNewestFirst)
      filter.order = db::EventFilter::Order::kNewestFirst;
    TRY_ASSIGN(const auto rows, db::SandboxEvents(database).list(team, id, filter));
    std::vector<Event> events;
    for (const db::SandboxEvent& row : rows) {
      events.push_back({.time = WallClock::time_point(milliseconds(row.time_ms)),
                        .level = static_cast<Event::Level>(row.level),
                        .message = row.message,
                        .fields = row.fields});
    }
    return events;
  };
  co_return co_await database_->with(std::move(work));
}

}  // namespace caisson::fleet
