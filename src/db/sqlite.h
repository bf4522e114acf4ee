// SQLite behind owned handles and Results. sqlite.cpp is the only file that sees its C API.
//
// A connection keeps each statement that it has prepared, and lends it to a Query, which gives it
// back when it ends. SQL is a constant of the program (Sql); what comes from elsewhere is bound as
// a value, so that nothing a client says is ever read as SQL. A query must end before its
// connection does. One thread at a time.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace caisson::db {

// A text put together by the compiler, for statements that share their columns:
//   constexpr SqlText kSelect = "SELECT id, name FROM teams";
//   constexpr auto kFind = kSelect + " WHERE slug = ?";
template <std::size_t N>
struct SqlText {
  char text[N] = {};
  consteval SqlText() = default;
  consteval SqlText(const char (&from)[N]) {
    for (std::size_t i = 0; i < N; ++i) text[i] = from[i];
  }
  template <std::size_t M>
  consteval SqlText<N + M - 1> operator+(const char (&behind)[M]) const {
    SqlText<N + M - 1> sum;
    for (std::size_t i = 0; i + 1 < N; ++i) sum.text[i] = text[i];
    for (std::size_t i = 0; i < M; ++i) sum.text[N - 1 + i] = behind[i];
    return sum;
  }
};

// One SQL statement, known when the program is compiled.
struct Sql {
  std::string_view text;
  template <std::size_t N>
  consteval Sql(const char (&from)[N]) : text(from, N - 1) {}
  template <std::size_t N>
  consteval Sql(const SqlText<N>& from) : text(from.text, N - 1) {}
};

// Bytes that are no text.
struct Blob {
  std::string_view bytes;
};

struct StatementCloser {
  void operator()(sqlite3_stmt* statement) const;
};
using Statement = std::unique_ptr<sqlite3_stmt, StatementCloser>;
using StatementCache = std::map<std::string_view, Statement>;

// A statement with its values, being read row by row.
class [[nodiscard]] Query {
 public:
  Query(StatementCache& cache, std::string_view sql, Statement statement)
      : cache_(&cache), sql_(sql), statement_(std::move(statement)) {}
  Query(Query&&) noexcept = default;
  Query& operator=(Query&&) = delete;
  ~Query();

  // Steps to the next row; false: there is none. Errors as of Sqlite::query().
  Result<bool> next();

  // The column of the current row, from 0. T: std::int64_t, std::uint64_t, std::string (a text or a
  // blob), or std::optional of one of them where the column may be NULL.
  template <typename T>
  T get(int column) const {
    T value{};
    read(column, value);
    return value;
  }

 private:
  friend class Sqlite;
  Status bind(int index, std::nullopt_t);
  Status bind(int index, std::string_view text);
  Status bind(int index, Blob blob);
  Status bind(int index, std::int64_t number);
  Status bind_amount(int index, std::uint64_t amount);
  template <std::integral T>
  Status bind(int index, T number) {
    if constexpr (std::in_range<std::int64_t>(std::numeric_limits<T>::max())) {
      return bind(index, static_cast<std::int64_t>(number));
    } else {
      return bind_amount(index, number);
    }
  }
  template <typename T>
  Status bind(int index, const std::optional<T>& value) {
    return value.has_value() ? bind(index, *value) : bind(index, std::nullopt);
  }

  bool is_null(int column) const;
  void read(int column, std::int64_t& value) const;
  void read(int column, std::uint64_t& value) const;
  void read(int column, std::string& value) const;
  template <typename T>
  void read(int column, std::optional<T>& value) const {
    if (!is_null(column)) read(column, value.emplace());
  }

  StatementCache* cache_;
  std::string_view sql_;
  Statement statement_;
};

class Sqlite {
 public:
  // Opens the file, which must be there. Errors: data_loss where it is no database.
  static Result<Sqlite> open(const std::string& path);
  Sqlite(Sqlite&&) noexcept = default;
  Sqlite& operator=(Sqlite&&) = delete;
  ~Sqlite() = default;

  // A statement with its values bound in their order. Errors, here and as rows are read:
  // unavailable (another process holds the lock for longer than the time it is waited for),
  // already_exists (a row that may be there once), failed_precondition (a row that another one
  // needs), resource_exhausted (the disk is full), data_loss, internal.
  template <typename... Values>
  Result<Query> query(Sql sql, const Values&... values) {
    TRY_ASSIGN(Query query, prepare(sql));
    [[maybe_unused]] int index = 0;
    Status bound;
    (void)(... && (bound = query.bind(++index, values)).has_value());
    TRY(bound);
    return query;
  }
  // The same for a statement without rows: how many rows it changed.
  template <typename... Values>
  Result<std::int64_t> run(Sql sql, const Values&... values) {
    TRY_ASSIGN(Query done, query(sql, values...));
    TRY(done.next());
    return changed_rows();
  }
  // Statements without values, one behind the other.
  Status run_script(const std::string& script);

 private:
  struct Closer {
    void operator()(sqlite3* handle) const;
  };
  using Handle = std::unique_ptr<sqlite3, Closer>;
  explicit Sqlite(Handle handle);

  Result<Query> prepare(Sql sql);
  std::int64_t changed_rows() const;

  Handle handle_;
  // Behind a pointer, so that queries know where it is when the connection moves; before the
  // handle it ends, as SQLite wants.
  std::unique_ptr<StatementCache> statements_;
};

// When a transaction's changes survive a power failure: with one of the next (a program's crash
// alone loses nothing), or before commit() returns.
enum class Durability : std::uint8_t { kSoon, kAtOnce };

// All of what is done until commit(), or nothing of it. Takes the writer's lock at once, so that
// what is read in it stays true. Not nested.
class [[nodiscard]] Transaction {
 public:
  static Result<Transaction> begin(Sqlite& sqlite, Durability durability = Durability::kSoon);
  Transaction(Transaction&& other) noexcept
      : sqlite_(std::exchange(other.sqlite_, nullptr)), durability_(other.durability_) {}
  Transaction& operator=(Transaction&&) = delete;
  // Takes everything back, unless it was committed.
  ~Transaction();
  Status commit();

 private:
  Transaction(Sqlite& sqlite, Durability durability) : sqlite_(&sqlite), durability_(durability) {}
  void end();

  Sqlite* sqlite_;  // null when it has ended
  Durability durability_;
};

}  // namespace caisson::db
