// The server's database: one file, in which the server keeps what must outlive it, and nothing that
// is secret in clear. API keys are there as hashes, access tokens not at all (db/server_secret.h),
// and the variables of a sandbox only in its supervisor's memory.
//
// Written ahead (WAL), so that readers and the one writer do not wait for each other, and so that
// the command line may use it beside the server. A commit is not flushed to the disk by itself
// (synchronous = NORMAL): a program that dies loses nothing; after a power failure the newest
// commits may be gone, never a part of one. What they were about, running sandboxes, is then gone
// too. What somebody relies on, as on a key that was revoked, is flushed before it is answered
// (Durability).
//
// One thread at a time: the server calls it on a pool of one thread, since calls wait for disk and
// locks. Whoever owns a Database lets it outlive the repositories (Teams, Keys, …) made of it.
#pragma once

#include <string>

#include "db/sqlite.h"

namespace caisson::db {

class Database {
 public:
  // Opens the file `path`; makes it (0600) and its folder (0700) where they are not there, with the
  // default team in it; brings it to this program's version. What root makes in another user's
  // folder becomes that user's. Errors: failed_precondition (a newer program's database, a folder
  // that others may write to), data_loss (no database of ours), and what the system says.
  static Result<Database> open(const std::string& path);

  Sqlite& sqlite() { return sqlite_; }

 private:
  explicit Database(Sqlite sqlite) : sqlite_(std::move(sqlite)) {}
  Sqlite sqlite_;
};

// Where the server keeps its database and its secret: a folder of its own in the state directory.
std::string server_directory(const std::string& state_directory);
std::string database_path(const std::string& state_directory);

}  // namespace caisson::db
