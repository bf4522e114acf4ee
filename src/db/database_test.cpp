#include "db/database.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <thread>
#include <vector>

#include "db/database_for_test.h"
#include "db/schema.h"

namespace caisson::db {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

mode_t mode_of(const std::string& path) {
  struct stat status{};
  EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 07777;
}

std::int64_t number(Sqlite& sqlite, Sql sql) {
  Query query = sqlite.query(sql).value();
  EXPECT_TRUE(query.next().value());
  return query.get<std::int64_t>(0);
}

TEST(Database, IsMadeForItsOwnerAlone) {
  const TemporaryFolder folder;
  const mode_t before = ::umask(0);
  const std::string path = database_path(folder.path() + "/state");
  {
    Database database = Database::open(path).value();
    EXPECT_EQ(mode_of(path), 0600u);
    EXPECT_EQ(mode_of(path + "-wal"), 0600u);
    EXPECT_EQ(mode_of(folder.path() + "/state/server"), 0700u);
    EXPECT_EQ(mode_of(folder.path() + "/state"), 0755u);
    EXPECT_EQ(number(database.sqlite(), "PRAGMA foreign_keys"), 1);
    EXPECT_EQ(number(database.sqlite(), "PRAGMA user_version"),
              static_cast<std::int64_t>(schema_steps().size()));
  }
  ::umask(before);
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  ASSERT_TRUE(Database::open(path));
  EXPECT_EQ(mode_of(path), 0600u);
}

TEST(Database, HasTheDefaultTeamOnce) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/server/a.db";
  std::string id;
  for (int i = 0; i < 2; ++i) {
    Database database = Database::open(path).value();
    const auto teams = Teams(database).list().value();
    ASSERT_EQ(teams.size(), 1u);
    EXPECT_EQ(teams[0].slug, kDefaultTeam);
    if (i == 0) id = teams[0].id;
    EXPECT_EQ(teams[0].id, id);
  }
}

TEST(Database, AFolderThatOthersMayWriteToIsRefused) {
  const TemporaryFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0770), 0);
  const auto database = Database::open(folder.path() + "/a.db");
  ASSERT_FALSE(database);
  EXPECT_EQ(database.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(database.error().message(), AllOf(HasSubstr(folder.path()), HasSubstr("0700")));
}

TEST(Database, ALinkIsNotFollowed) {
  const TemporaryFolder folder;
  ASSERT_EQ(::symlink("elsewhere", (folder.path() + "/a.db").c_str()), 0);
  const auto database = Database::open(folder.path() + "/a.db");
  ASSERT_FALSE(database);
  EXPECT_EQ(database.error().code(), Code::kFailedPrecondition);
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/elsewhere"));
}

TEST(Database, APathWithoutAFolderIsRefused) {
  EXPECT_EQ(Database::open("a.db").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(Database::open("/tmp/").error().code(), Code::kInvalidArgument);
}

TEST(Database, AnotherProgramsFileIsLeftAsItIs) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.db";
  std::ofstream(path) << std::string(8192, 'x');
  EXPECT_EQ(Database::open(path).error().code(), Code::kDataLoss);
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::app).flush();
  ASSERT_TRUE(Sqlite::open(path).value().run_script("CREATE TABLE theirs (a)"));
  const auto database = Database::open(path);
  ASSERT_FALSE(database);
  EXPECT_EQ(database.error().code(), Code::kDataLoss);
  EXPECT_THAT(database.error().message(), HasSubstr(path));
  Sqlite sqlite = Sqlite::open(path).value();
  EXPECT_EQ(number(sqlite, "SELECT count(*) FROM sqlite_schema"), 1);
}

TEST(Database, ANewerOneIsRefusedAndStays) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.db";
  ASSERT_TRUE(Database::open(path).value().sqlite().run_script("PRAGMA user_version = 4711"));
  const auto database = Database::open(path);
  ASSERT_FALSE(database);
  EXPECT_EQ(database.error().code(), Code::kFailedPrecondition);
  EXPECT_THAT(database.error().message(), AllOf(HasSubstr("4711"), HasSubstr("newer")));
  Sqlite sqlite = Sqlite::open(path).value();
  EXPECT_EQ(number(sqlite, "PRAGMA user_version"), 4711);
}

TEST(Database, EveryOlderVersionBecomesTheNewest) {
  for (std::size_t version = 0; version <= schema_steps().size(); ++version) {
    const TemporaryFolder folder;
    const std::string path = folder.path() + "/a.db";
    std::ofstream(path, std::ios::app).flush();
    {
      Sqlite sqlite = Sqlite::open(path).value();
      ASSERT_TRUE(sqlite.run_script("PRAGMA application_id = 1131638321"));
      ASSERT_TRUE(migrate(sqlite, schema_steps().first(version)));
      if (version > 0) {
        ASSERT_TRUE(
            sqlite.run_script("INSERT INTO teams (id, slug, name, created_ms) VALUES "
                              "('a', 'default', 'Old', 1), ('b', 'other', '', 2)"));
      }
    }
    Database database = Database::open(path).value();
    EXPECT_EQ(Teams(database).list().value().size(), version > 0 ? 2u : 1u);
    // The same tables as in a database that was never older.
    Database fresh = Database::open(folder.path() + "/fresh.db").value();
    const auto tables = [](Database& one) {
      std::vector<std::string> all;
      Query query = one.sqlite().query("SELECT sql FROM sqlite_schema ORDER BY name").value();
      while (query.next().value()) all.push_back(query.get<std::string>(0));
      return all;
    };
    EXPECT_EQ(tables(database), tables(fresh));
  }
}

TEST(Database, LogsOfOlderBuildsAreMeasured) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.db";
  std::ofstream(path, std::ios::app).flush();
  {
    Sqlite sqlite = Sqlite::open(path).value();
    ASSERT_TRUE(sqlite.run_script("PRAGMA application_id = 1131638321"));
    ASSERT_TRUE(migrate(sqlite, schema_steps().first(3)));
    ASSERT_TRUE(sqlite.run_script(
        "INSERT INTO teams (id, slug, name, created_ms) VALUES ('a', 'default', 'Old', 1);"
        "INSERT INTO templates VALUES ('t', 'a', NULL, 1, 1, 0);"
        "INSERT INTO builds VALUES ('one', 't', 'ready', '', 'img', 1, 1, 1, '', '', '', '', 1, 1);"
        "INSERT INTO builds VALUES ('two', 't', 'error', '', '', 1, 1, 1, '', '', '', '', 1, 1);"
        "INSERT INTO build_logs VALUES ('one', 0, 1, 1, '', 'four'), ('one', 1, 1, 1, '', 'ü');"));
  }
  Database database = Database::open(path).value();
  Sqlite& sqlite = database.sqlite();
  EXPECT_EQ(number(sqlite, "SELECT log_bytes FROM builds WHERE id = 'one'"), 6);
  EXPECT_EQ(number(sqlite, "SELECT log_bytes FROM builds WHERE id = 'two'"), 0);
}

TEST(Database, AStepThatFailsLeavesTheOldVersion) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.db";
  std::ofstream(path, std::ios::app).flush();
  Sqlite sqlite = Sqlite::open(path).value();
  constexpr std::array<std::string_view, 3> kSteps = {
      "CREATE TABLE one (a)", "CREATE TABLE two (a); INSERT INTO two VALUES (1)",
      "CREATE TABLE three (a); INSERT INTO nothing VALUES (1)"};
  ASSERT_TRUE(migrate(sqlite, std::span(kSteps).first(1)));
  const auto done = migrate(sqlite, kSteps);
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().message(), AllOf(HasSubstr("version 3"), HasSubstr("nothing")));
  EXPECT_EQ(number(sqlite, "PRAGMA user_version"), 1);
  EXPECT_EQ(number(sqlite, "SELECT count(*) FROM sqlite_schema"), 1);
  ASSERT_TRUE(migrate(sqlite, std::span(kSteps).first(2)));
  EXPECT_EQ(number(sqlite, "SELECT a FROM two"), 1);
}

TEST(Database, ManyProcessesMayOpenItForTheFirstTime) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/server/a.db";
  std::vector<pid_t> children;
  for (int i = 0; i < 8; ++i) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      auto database = Database::open(path);
      if (!database.has_value()) ADD_FAILURE() << database.error().message();
      ::_exit(database.has_value() ? 0 : 1);
    }
    children.push_back(pid);
  }
  for (const pid_t pid : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  Database database = Database::open(path).value();
  EXPECT_EQ(Teams(database).list().value().size(), 1u);
}

TEST(Database, WhatRootMakesBelongsToTheFoldersOwner) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const TemporaryFolder folder;
  ASSERT_EQ(::chmod(folder.path().c_str(), 0700), 0);
  ASSERT_EQ(::chown(folder.path().c_str(), 4321, 4321), 0);
  Database database = Database::open(folder.path() + "/a.db").value();
  for (const char* name : {"/a.db", "/a.db-wal", "/a.db-shm"}) {
    struct stat status{};
    ASSERT_EQ(::stat((folder.path() + name).c_str(), &status), 0) << name;
    EXPECT_EQ(status.st_uid, 4321u) << name;
  }
}

}  // namespace
}  // namespace caisson::db
