// A fleet's records in the database (db/sandboxes.h).
//
// What decides how a sandbox's life goes on (its end, its tokens, who it runs as) is a JSON object
// of the row. Variables are not written: they may be secret, and are the supervisor's to keep.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
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
  // Rows that cannot be read are told apart, as damaged, and stay.
  io::Async<Result<AllRecords>> all() override;
  io::Async<Status> add_events(std::vector<Noted> events) override;
  io::Async<Result<std::vector<Event>>> events(std::string team, std::string id,
                                               EventQuery query) override;

 private:
  // row_of(), for the recipe of which most sandboxes are made worked out once.
  db::SandboxRow row(const Record& record) const;

  std::shared_ptr<SharedDatabase> database_;
  std::shared_ptr<db::Variables> variables_;  // used with the database's turn alone
  struct Known {
    Recipe recipe;
    std::optional<json::Value> said;  // as a row has it
  };
  mutable std::optional<Known> last_;  // the loop's
};

// Pure, for tests: a row and back. Error: a lifecycle that is none of ours.
db::SandboxRow row_of(const Record& record);
Result<Record> record_of(const db::SandboxRow& row);

}  // namespace caisson::fleet
