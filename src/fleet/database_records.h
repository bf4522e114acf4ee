// A fleet's records in the database (db/sandboxes.h).
//
// What decides how a sandbox's life goes on (its end, its tokens, who it runs as) is a JSON object
// of the row. Variables are not written: they may be secret, and are the supervisor's to keep.
#pragma once

#include <memory>
#include <string>

#include "db/sandbox_events.h"
#include "db/sandboxes.h"
#include "db/variables.h"
#include "fleet/records.h"
#include "fleet/shared_database.h"

namespace caisson::fleet {

class DatabaseRecords final : public Records {
 public:
  DatabaseRecords(std::shared_ptr<SharedDatabase> database, db::Variables variables)
      : database_(std::move(database)),
        variables_(std::make_shared<db::Variables>(std::move(variables))) {}

  Status check(const Record& record) const override;
  io::Async<Status> put(Record record) override;
  io::Async<Status> remove(std::string id) override;
  // Rows that cannot be read are left out, and removed.
  io::Async<Result<std::vector<Record>>> all() override;
  io::Async<Status> add_events(std::vector<Noted> events) override;
  io::Async<Result<std::vector<Event>>> events(std::string team, std::string id,
                                               EventQuery query) override;

 private:
  std::shared_ptr<SharedDatabase> database_;
  std::shared_ptr<db::Variables> variables_;  // used with the database's turn alone
};

// Pure, for tests: a row and back. Error: a lifecycle that is none of ours.
db::SandboxRow row_of(const Record& record);
Result<Record> record_of(const db::SandboxRow& row);

}  // namespace caisson::fleet
