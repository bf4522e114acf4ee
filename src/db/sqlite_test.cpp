#include "db/sqlite.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "db/database_for_test.h"

namespace caisson::db {
namespace {

using ::testing::HasSubstr;

class SqliteTest : public ::testing::Test {
 protected:
  static Sqlite open(const std::string& path) {
    std::ofstream(path, std::ios::app).flush();
    return Sqlite::open(path).value();
  }
  std::int64_t count() {
    Query query = sqlite_.query("SELECT count(*) FROM things").value();
    EXPECT_TRUE(query.next().value());
    return query.get<std::int64_t>(0);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/a.db";
  Sqlite sqlite_ = open(path_);
  Status made_ = sqlite_.run_script(
      "CREATE TABLE things (id INTEGER PRIMARY KEY, word TEXT, bytes BLOB) "
      "STRICT; PRAGMA foreign_keys = ON; CREATE TABLE parts (thing INTEGER NOT "
      "NULL REFERENCES things (id)) STRICT");
};

TEST_F(SqliteTest, ValuesComeBackAsTheyWere) {
  const std::string odd("a'\"\0;--", 7);
  ASSERT_TRUE(sqlite_.run("INSERT INTO things VALUES (?, ?, ?)", INT64_MAX, odd, Blob{odd}));
  ASSERT_TRUE(sqlite_.run("INSERT INTO things VALUES (?, ?, ?)", -5, std::string_view(), Blob{}));
  ASSERT_TRUE(sqlite_.run("INSERT INTO things VALUES (?, ?, ?)", 7u, std::nullopt,
                          std::optional<std::string>()));
  Query query = sqlite_.query("SELECT id, word, bytes FROM things ORDER BY id").value();
  ASSERT_TRUE(query.next().value());
  EXPECT_EQ(query.get<std::int64_t>(0), -5);
  EXPECT_EQ(query.get<std::optional<std::string>>(1), "");
  EXPECT_EQ(query.get<std::optional<std::string>>(2), "");
  ASSERT_TRUE(query.next().value());
  EXPECT_EQ(query.get<std::uint64_t>(0), 7u);
  EXPECT_EQ(query.get<std::optional<std::string>>(1), std::nullopt);
  EXPECT_EQ(query.get<std::string>(2), "");
  ASSERT_TRUE(query.next().value());
  EXPECT_EQ(query.get<std::optional<std::uint64_t>>(0), INT64_MAX);
  EXPECT_EQ(query.get<std::string>(1), odd);
  EXPECT_EQ(query.get<std::string>(2), odd);
  EXPECT_FALSE(query.next().value());
}

TEST_F(SqliteTest, AnAmountBeyondTheColumnIsRefused) {
  const auto done = sqlite_.run("INSERT INTO things (id) VALUES (?)", UINT64_MAX);
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code(), Code::kOutOfRange);
  EXPECT_EQ(count(), 0);
}

TEST_F(SqliteTest, AStatementIsUsedAgainWithoutItsOldValues) {
  constexpr const char* kNames[] = {"one", "two"};
  for (const char* name : kNames) {
    ASSERT_TRUE(sqlite_.run("INSERT INTO things (word) VALUES (?)", name));
  }
  // Given back in the middle of its rows.
  for (int i = 0; i < 2; ++i) {
    Query query = sqlite_.query("SELECT word FROM things WHERE word <> ? ORDER BY id", "x").value();
    ASSERT_TRUE(query.next().value());
    EXPECT_EQ(query.get<std::string>(0), "one");
  }
}

TEST_F(SqliteTest, OneStatementMayRunTwiceAtATime) {
  ASSERT_TRUE(sqlite_.run("INSERT INTO things (id) VALUES (1), (2)"));
  for (int round = 0; round < 2; ++round) {
    Query outer = sqlite_.query("SELECT id FROM things ORDER BY id").value();
    ASSERT_TRUE(outer.next().value());
    Query inner = sqlite_.query("SELECT id FROM things ORDER BY id").value();
    ASSERT_TRUE(inner.next().value());
    ASSERT_TRUE(outer.next().value());
    EXPECT_EQ(outer.get<std::int64_t>(0), 2);
    EXPECT_EQ(inner.get<std::int64_t>(0), 1);
  }
}

TEST_F(SqliteTest, ErrorsHaveTheirCodes) {
  ASSERT_TRUE(sqlite_.run("INSERT INTO things (id) VALUES (1)"));
  const auto twice = sqlite_.run("INSERT INTO things (id) VALUES (1)");
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().code(), Code::kAlreadyExists);
  const auto orphan = sqlite_.run("INSERT INTO parts VALUES (9)");
  ASSERT_FALSE(orphan);
  EXPECT_EQ(orphan.error().code(), Code::kFailedPrecondition);
  const auto wrong = sqlite_.query("SELECT nothing FROM things");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code(), Code::kInternal);
  EXPECT_THAT(wrong.error().message(), HasSubstr("nothing"));
  const auto misspelt = sqlite_.query("SELECT \"nothing\" FROM things");
  EXPECT_FALSE(misspelt);
  const auto typed = sqlite_.run("INSERT INTO things (id) VALUES (?)", "text");
  EXPECT_FALSE(typed);
  const auto large = sqlite_.run("INSERT INTO things (word) VALUES (?)", std::string(5 << 20, 'a'));
  ASSERT_FALSE(large);
  EXPECT_EQ(large.error().code(), Code::kResourceExhausted);
}

TEST_F(SqliteTest, ALockThatAnotherHoldsMakesItUnavailable) {
  Sqlite other = open(path_);
  ASSERT_TRUE(other.run_script("PRAGMA busy_timeout = 0"));
  Transaction transaction = Transaction::begin(sqlite_).value();
  const auto begun = Transaction::begin(other);
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().code(), Code::kUnavailable);
  ASSERT_TRUE(transaction.commit());
  EXPECT_TRUE(Transaction::begin(other));
}

TEST_F(SqliteTest, AFullDiskIsExhaustedAndNothingIsHalfDone) {
  ASSERT_TRUE(sqlite_.run_script("PRAGMA max_page_count = 8"));
  {
    Transaction transaction = Transaction::begin(sqlite_).value();
    ASSERT_TRUE(sqlite_.run("INSERT INTO things (id) VALUES (1)"));
    const auto full =
        sqlite_.run("INSERT INTO things (word) VALUES (?)", std::string(100'000, 'a'));
    ASSERT_FALSE(full);
    EXPECT_EQ(full.error().code(), Code::kResourceExhausted);
  }
  EXPECT_EQ(count(), 0);
}

TEST_F(SqliteTest, AFileThatIsNoDatabaseIsDataLoss) {
  std::ofstream(folder_.path() + "/b.db") << std::string(4096, 'x');
  Sqlite other = Sqlite::open(folder_.path() + "/b.db").value();
  const auto query = other.query("SELECT 1 FROM sqlite_schema");
  ASSERT_FALSE(query);
  EXPECT_EQ(query.error().code(), Code::kDataLoss);
}

TEST_F(SqliteTest, AFileThatIsNotThereIsNotMade) {
  EXPECT_FALSE(Sqlite::open(folder_.path() + "/none.db"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/none.db"));
}

TEST_F(SqliteTest, ATransactionIsAllOrNothing) {
  {
    Transaction transaction = Transaction::begin(sqlite_).value();
    ASSERT_TRUE(sqlite_.run("INSERT INTO things (id) VALUES (1)"));
  }
  EXPECT_EQ(count(), 0);
  {
    Transaction transaction = Transaction::begin(sqlite_, Durability::kAtOnce).value();
    ASSERT_TRUE(sqlite_.run("INSERT INTO things (id) VALUES (1)"));
    ASSERT_TRUE(transaction.commit());
  }
  EXPECT_EQ(count(), 1);
  Query query = sqlite_.query("PRAGMA synchronous").value();
  ASSERT_TRUE(query.next().value());
  EXPECT_EQ(query.get<std::int64_t>(0), 1) << "flushing at once is this transaction's alone";
}

TEST_F(SqliteTest, TransactionsDoNotNest) {
  Transaction transaction = Transaction::begin(sqlite_).value();
  EXPECT_FALSE(Transaction::begin(sqlite_));
  ASSERT_TRUE(sqlite_.run("INSERT INTO things (id) VALUES (1)"));
  ASSERT_TRUE(transaction.commit());
  EXPECT_EQ(count(), 1);
}

}  // namespace
}  // namespace caisson::db
