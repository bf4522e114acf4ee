// For tests: a database in a folder of its own, with two teams that must not see each other.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "db/database.h"
#include "db/teams.h"

namespace caisson::db {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    char name[] = "/tmp/caisson-db-XXXXXX";
    VERIFY(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

class DatabaseTest : public ::testing::Test {
 protected:
  static Team made(Result<Team> team) {
    VERIFY(team.has_value());
    return std::move(*team);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/server/caisson.db";
  Database database_ = Database::open(path_).value();
  Teams teams_{database_};
  Team ours_ = made(teams_.find(kDefaultTeam));
  Team theirs_ = made(teams_.create("theirs", "Theirs", Quota(), 1));
};

}  // namespace caisson::db
