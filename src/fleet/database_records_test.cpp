#include "fleet/database_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>

#include "db/teams.h"
#include "io/loop_for_test.h"

namespace caisson::fleet {
namespace {

using std::chrono::seconds;

Record record(std::string team, std::string id) {
  Record made{.team = std::move(team), .image = "base", .host_id = id, .user = "user"};
  made.recipe = {.image = "base", .cpu_milli = 1500, .memory_bytes = 512ull << 20, .pids = 7};
  made.recipe.disk_bytes = std::nullopt;
  made.recipe.privileges = policy::Privileges::kNone;
  made.secure = false;
  made.timeout = seconds(77);
  made.env = {{"TOKEN", "secret"}};
  made.start = {.command = "serve", .ready = "check", .label = "label"};
  made.view.id = std::move(id);
  made.view.template_id = "base";
  made.view.started = WallClock::time_point(std::chrono::microseconds(1'700'000'000'123'456));
  made.view.end = WallClock::time_point(seconds(1'800'000'000));
  made.view.cpus = 2;
  made.view.memory_mib = 512;
  made.view.metadata = {{"a", "b"}};
  made.view.on_timeout = NewSandbox::OnTimeout::kPause;
  made.view.on_timeout_keeps = Keep::kFiles;
  made.view.auto_resume = true;
  made.view.public_traffic = false;
  made.view.mask_request_host = "x:${PORT}";
  return made;
}

TEST(DatabaseRecordsRow, ARecordComesBackAsItWas) {
  const Record before = record("t", "abc");
  const Record after = record_of(row_of(before)).value();
  EXPECT_EQ(row_of(after), row_of(before));
  EXPECT_EQ(after.view.started, before.view.started);
  EXPECT_EQ(after.view.end, before.view.end);
  EXPECT_EQ(after.timeout, before.timeout);
  EXPECT_EQ(after.recipe, before.recipe);
  EXPECT_EQ(after.start, before.start);
  EXPECT_FALSE(after.secure);
  EXPECT_EQ(after.view.cpus, 2u);
}

TEST(DatabaseRecordsRow, ARowWithoutARecipeHasThatOfItsColumns) {
  db::SandboxRow row = row_of(record("t", "abc"));
  for (const char* recipe : {"", R"(,"recipe":7)", R"(,"recipe":{"unheard_of":1})"}) {
    row.lifecycle = std::string(R"({"pauses":false,"keepsFiles":false,"resumes":false,)"
                                R"("publicTraffic":true,"maskRequestHost":"")") +
                    recipe + "}";
    const Recipe found = record_of(row).value().recipe;
    Recipe expected{.image = "base", .cpu_milli = 1500, .memory_bytes = 512ull << 20};
    expected.disk_bytes = std::nullopt;
    // One that another version wrote may have had no sudo.
    if (*recipe != '\0') expected.privileges = policy::Privileges::kNone;
    EXPECT_EQ(found, expected) << recipe;
  }
}

TEST(DatabaseRecordsRow, ALifecycleThatIsNoneIsAnError) {
  db::SandboxRow row = row_of(record("t", "abc"));
  for (const char* bad : {"", "[]", "{}", R"({"pauses":1})", R"({"pauses":true})"}) {
    row.lifecycle = bad;
    EXPECT_FALSE(record_of(row).has_value()) << bad;
  }
}

TEST(DatabaseRecords, AreWrittenChangedAndFoundAgain) {
  std::string directory = std::filesystem::temp_directory_path() / "records-XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const auto in_loop = [&](auto body) {
    io::Loop loop(1);
    auto database = db::Database::open(directory + "/server/caisson.db");
    ASSERT_TRUE(database.has_value()) << database.error().message();
    auto task = [](io::Loop& on, db::Database opened, std::string run_directory,
                   decltype(body)& run) -> io::Async<void> {
      const std::string team = db::Teams(opened).find(db::kDefaultTeam).value().id;
      DatabaseRecords records(std::make_shared<SharedDatabase>(on, std::move(opened)),
                              db::Variables::open(run_directory).value());
      co_await run(records, team);
      on.stop();
    };
    loop.spawn(task(loop, std::move(*database), directory, body));
    loop.run();
  };
  in_loop([](DatabaseRecords& records, std::string team) -> io::Async<void> {
    Record bad = record(team, "");
    EXPECT_TRUE(records.check(bad).has_value());
    bad.env = {{"A", "\xff"}};
    EXPECT_EQ(records.check(bad).error().code(), Code::kInvalidArgument);
    bad = record(team, "");
    bad.view.metadata = {{"a", std::string(70'000, 'x')}};
    EXPECT_EQ(records.check(bad).error().code(), Code::kInvalidArgument);
    auto put = co_await records.put(record(team, "one"));
    EXPECT_TRUE(put.has_value());
    put = co_await records.put(record(team, "two"));
    EXPECT_TRUE(put.has_value());
    put = co_await records.put(record("nobody", "three"));
    EXPECT_FALSE(put.has_value());
    Record changed = record(team, "one");
    changed.view.state = State::kPaused;
    put = co_await records.put(changed);
    EXPECT_TRUE(put.has_value());
    const auto removed = co_await records.remove("two");
    EXPECT_TRUE(removed.has_value());
    const auto unknown = co_await records.remove("four");
    EXPECT_TRUE(unknown.has_value());
    const Event event{.time = WallClock::time_point(seconds(7)),
                      .level = Event::Level::kWarn,
                      .message = "it ended",
                      .fields = {{"by", "nobody"}}};
    const auto noted = co_await records.add_events({{team, "two", event}});
    EXPECT_TRUE(noted.has_value());
  });
  in_loop([](DatabaseRecords& records, std::string team) -> io::Async<void> {
    auto stored = co_await records.all();
    EXPECT_TRUE(stored->damaged.empty());
    const auto* all = &stored->records;
    EXPECT_EQ(all->size(), 1u);
    EXPECT_EQ((*all)[0].view.state, State::kPaused);
    EXPECT_EQ((*all)[0].view.metadata.at("a"), "b");
    EXPECT_EQ((*all)[0].env.at("TOKEN"), "secret");
    Record changed = record(team, "one");
    changed.view.end += seconds(9);
    auto put = co_await records.put(changed);
    EXPECT_TRUE(put.has_value());
    stored = co_await records.all();
    all = &stored->records;
    EXPECT_EQ((*all)[0].view.state, State::kRunning);
    EXPECT_EQ((*all)[0].view.end, changed.view.end);
    const auto log = co_await records.events(team, "two", {.from = WallClock::time_point()});
    EXPECT_EQ(log->size(), 1u);
    EXPECT_EQ((*log)[0].time, WallClock::time_point(seconds(7)));
    EXPECT_EQ((*log)[0].level, Event::Level::kWarn);
    EXPECT_EQ((*log)[0].message, "it ended");
    EXPECT_EQ((*log)[0].fields.at("by"), "nobody");
    const auto earlier = co_await records.events(
        team, "two", {.to = WallClock::time_point(), .order = EventQuery::Order::kNewestFirst});
    EXPECT_TRUE(earlier->empty());
    const auto nobodys = co_await records.events("nobody", "two", {});
    EXPECT_EQ(nobodys.error().code(), Code::kNotFound);
  });
  // What is damaged is told, hides nothing else, and keeps what belongs to it.
  const auto run_sql = [&](const char* sql) {
    sqlite3* raw = nullptr;
    ASSERT_EQ(::sqlite3_open((directory + "/server/caisson.db").c_str(), &raw), SQLITE_OK);
    EXPECT_EQ(::sqlite3_exec(raw, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    ::sqlite3_close(raw);
  };
  in_loop([](DatabaseRecords& records, std::string team) -> io::Async<void> {
    for (const char* id : {"four", "five"}) {
      const auto put = co_await records.put(record(team, id));
      EXPECT_TRUE(put.has_value());
    }
  });
  run_sql(
      "UPDATE sandboxes SET metadata = '[' WHERE id = 'four';"
      "UPDATE sandboxes SET lifecycle = '{}' WHERE id = 'five'");
  in_loop([](DatabaseRecords& records, std::string team) -> io::Async<void> {
    const auto found = co_await records.all();
    EXPECT_EQ(found->records.size(), 1u);
    EXPECT_EQ(found->damaged.size(), 2u);
    if (found->damaged.size() != 2) co_return;
    for (const Damaged& one : found->damaged) {
      EXPECT_EQ(one.team, team);
      EXPECT_EQ(one.host_id, one.id);
      EXPECT_NE(one.why, "");
    }
  });
  run_sql(
      "UPDATE sandboxes SET metadata = '{}',"
      "  lifecycle = (SELECT lifecycle FROM sandboxes WHERE id = 'one')");
  in_loop([](DatabaseRecords& records, std::string) -> io::Async<void> {
    const auto found = co_await records.all();
    EXPECT_EQ(found->records.size(), 3u);
    for (const Record& one : found->records) EXPECT_EQ(one.env.at("TOKEN"), "secret");
  });
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace caisson::fleet
