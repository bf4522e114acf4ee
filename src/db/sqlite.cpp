#include "db/sqlite.h"

#include <sqlite3.h>

namespace caisson::db {
namespace {

constexpr int kBusyTimeoutMs = 5000;
// More than any statement here wants, less than would hurt.
constexpr int kMaxValueBytes = 4 << 20;

Code code_of(int result) {
  switch (result) {
    case SQLITE_CONSTRAINT_UNIQUE:
    case SQLITE_CONSTRAINT_PRIMARYKEY:
      return Code::kAlreadyExists;
    case SQLITE_CONSTRAINT_FOREIGNKEY:
      return Code::kFailedPrecondition;
    default:
      break;
  }
  switch (result & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return Code::kUnavailable;
    case SQLITE_FULL:
    case SQLITE_TOOBIG:
      return Code::kResourceExhausted;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Code::kDataLoss;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
      return Code::kPermissionDenied;
    default:
      return Code::kInternal;
  }
}

// SQLite's messages name tables and columns, never values.
std::unexpected<Error> failed(sqlite3* handle, int result) {
  const std::string message =
      handle == nullptr ? sqlite3_errstr(result) : std::string(sqlite3_errmsg(handle));
  return fail(Error(code_of(result), "the database: " + message));
}

std::unexpected<Error> failed(sqlite3_stmt* statement, int result) {
  return failed(sqlite3_db_handle(statement), result);
}

Status checked(sqlite3_stmt* statement, int result) {
  if (result != SQLITE_OK) return failed(statement, result);
  return {};
}

}  // namespace

void StatementCloser::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

void Sqlite::Closer::operator()(sqlite3* handle) const {
  sqlite3_close(handle);
}

Query::~Query() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_.get());
  sqlite3_clear_bindings(statement_.get());
  // Where a second query with the same text ran meanwhile, one of the two statements is enough.
  cache_->insert_or_assign(sql_, std::move(statement_));
}

Result<bool> Query::next() {
  const int result = sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  return failed(statement_.get(), result);
}

Status Query::bind(int index, std::nullopt_t) {
  return checked(statement_.get(), sqlite3_bind_null(statement_.get(), index));
}

Status Query::bind(int index, std::string_view text) {
  // A view of nothing has no pointer, which SQLite would take for NULL.
  const char* bytes = text.data() == nullptr ? "" : text.data();
  return checked(statement_.get(), sqlite3_bind_text64(statement_.get(), index, bytes, text.size(),
                                                       SQLITE_TRANSIENT, SQLITE_UTF8));
}

Status Query::bind(int index, Blob blob) {
  const char* bytes = blob.bytes.data() == nullptr ? "" : blob.bytes.data();
  return checked(statement_.get(), sqlite3_bind_blob64(statement_.get(), index, bytes,
                                                       blob.bytes.size(), SQLITE_TRANSIENT));
}

Status Query::bind(int index, std::int64_t number) {
  return checked(statement_.get(), sqlite3_bind_int64(statement_.get(), index, number));
}

Status Query::bind_amount(int index, std::uint64_t amount) {
  if (!std::in_range<std::int64_t>(amount)) {
    return fail(Error(Code::kOutOfRange, "the database: " + std::to_string(amount) +
                                             " is more than it can hold; allowed is " +
                                             std::to_string(INT64_MAX) + " at most"));
  }
  return bind(index, static_cast<std::int64_t>(amount));
}

bool Query::is_null(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

void Query::read(int column, std::int64_t& value) const {
  value = sqlite3_column_int64(statement_.get(), column);
}

void Query::read(int column, std::uint64_t& value) const {
  value = static_cast<std::uint64_t>(sqlite3_column_int64(statement_.get(), column));
}

void Query::read(int column, std::string& value) const {
  // A text's bytes are its blob; the pointer is null where there are none.
  const void* bytes = sqlite3_column_blob(statement_.get(), column);
  if (bytes == nullptr) return;
  value.assign(static_cast<const char*>(bytes),
               static_cast<std::size_t>(sqlite3_column_bytes(statement_.get(), column)));
}

Sqlite::Sqlite(Handle handle)
    : handle_(std::move(handle)), statements_(std::make_unique<StatementCache>()) {}

Result<Sqlite> Sqlite::open(const std::string& path) {
  sqlite3* raw = nullptr;
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  const int result = sqlite3_open_v2(path.c_str(), &raw, kFlags, nullptr);
  Handle handle(raw);
  if (result != SQLITE_OK) return failed(handle.get(), result);
  sqlite3_busy_timeout(handle.get(), kBusyTimeoutMs);
  sqlite3_limit(handle.get(), SQLITE_LIMIT_LENGTH, kMaxValueBytes);
  // Nothing that a damaged file says about itself is run or trusted.
  sqlite3_db_config(handle.get(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(handle.get(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  // A misspelt column is an error, not a text.
  sqlite3_db_config(handle.get(), SQLITE_DBCONFIG_DQS_DML, 0, nullptr);
  sqlite3_db_config(handle.get(), SQLITE_DBCONFIG_DQS_DDL, 0, nullptr);
  return Sqlite(std::move(handle));
}

Result<Query> Sqlite::prepare(Sql sql) {
  if (auto kept = statements_->extract(sql.text); !kept.empty()) {
    return Query(*statements_, sql.text, std::move(kept.mapped()));
  }
  sqlite3_stmt* raw = nullptr;
  const int result =
      sqlite3_prepare_v3(handle_.get(), sql.text.data(), static_cast<int>(sql.text.size()),
                         SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
  if (result != SQLITE_OK) return failed(handle_.get(), result);
  return Query(*statements_, sql.text, Statement(raw));
}

Status Sqlite::run_script(const std::string& script) {
  const int result = sqlite3_exec(handle_.get(), script.c_str(), nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) return failed(handle_.get(), result);
  return {};
}

std::int64_t Sqlite::changed_rows() const {
  return sqlite3_changes64(handle_.get());
}

Result<Transaction> Transaction::begin(Sqlite& sqlite, Durability durability) {
  if (durability == Durability::kAtOnce) TRY(sqlite.run("PRAGMA synchronous = FULL"));
  Transaction transaction(sqlite, durability);
  if (auto begun = sqlite.run("BEGIN IMMEDIATE"); !begun.has_value()) {
    transaction.end();
    return fail(std::move(begun).error());
  }
  return transaction;
}

void Transaction::end() {
  Sqlite* const sqlite = std::exchange(sqlite_, nullptr);
  // What open() has set.
  if (durability_ == Durability::kAtOnce) (void)sqlite->run("PRAGMA synchronous = NORMAL");
}

Transaction::~Transaction() {
  if (sqlite_ == nullptr) return;
  // An error: SQLite has rolled back by itself, and there is nothing left to take back.
  (void)sqlite_->run("ROLLBACK");
  end();
}

Status Transaction::commit() {
  TRY(sqlite_->run("COMMIT"));
  end();
  return {};
}

}  // namespace caisson::db
