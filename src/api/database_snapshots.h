// Snapshots of the database (db/templates.h), and what sandboxes are made of by their ids and
// names.
//
// Images that nothing refers to any more are dropped from the store: those of a snapshot that is
// removed or replaced at once, those of forks by sweep(), which whoever runs the server calls now
// and then.
#pragma once

#include <memory>
#include <string>

#include "api/snapshots.h"
#include "fleet/local_fleet.h"
#include "fleet/shared_database.h"

namespace caisson::api {

class DatabaseSnapshots final : public Snapshots {
 public:
  // The host outlives the loop.
  DatabaseSnapshots(io::Loop& loop, maker::Host& host,
                    std::shared_ptr<fleet::SharedDatabase> database)
      : loop_(loop), host_(host), database_(std::move(database)) {}

  io::Async<Result<SnapshotView>> add(std::string team, std::string sandbox, std::string name,
                                      fleet::Snapshot taken) override;
  io::Async<Result<SnapshotPage>> list(std::string team, SnapshotQuery query) override;
  io::Async<Status> remove(std::string team, std::string name) override;

  // What a sandbox of it is made of. Error: not_found.
  io::Async<Result<fleet::Template>> to_make(std::string team, std::string name);
  io::Async<Status> sweep();

 private:
  io::Async<Status> drop(std::vector<std::string> images);

  io::Loop& loop_;
  maker::Host& host_;
  std::shared_ptr<fleet::SharedDatabase> database_;
};

}  // namespace caisson::api
