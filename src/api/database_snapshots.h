// Snapshots of the database (db/templates.h), and what sandboxes are made of by their ids and
// names.
//
// Images that nothing refers to any more are dropped from the store: those of a snapshot that is
// removed or replaced at once, those of forks by sweep(), which whoever runs the server calls now
// and then.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "api/snapshots.h"
#include "fleet/local_fleet.h"
#include "fleet/shared_database.h"
#include "io/turns.h"

namespace caisson::api {

class DatabaseSnapshots final : public Snapshots {
 public:
  struct Options {
    std::uint64_t most = 1000;  // of a team
    // In which images are made and dropped (FleetOptions::image_turns); may be null.
    std::shared_ptr<io::Turns> turns;
  };
  // The host outlives the loop.
  DatabaseSnapshots(io::Loop& loop, maker::Host& host,
                    std::shared_ptr<fleet::SharedDatabase> database, Options options)
      : loop_(loop), host_(host), database_(std::move(database)), options_(std::move(options)) {}

  io::Async<Status> check(std::string team, std::string name) override;
  io::Async<Result<SnapshotView>> add(std::string team, std::string sandbox, std::string name,
                                      fleet::Snapshot taken) override;
  io::Async<Result<SnapshotPage>> list(std::string team, SnapshotQuery query) override;
  io::Async<Status> remove(std::string team, std::string name) override;

  // What a sandbox of it is made of. Error: not_found.
  io::Async<Result<fleet::Template>> to_make(std::string team, std::string name);
  io::Async<Status> sweep();

 private:
  // `team`: for whom; empty: for the server itself.
  io::Async<Status> drop(std::string team, std::vector<std::string> images);
  // But those that a build or a sandbox refers to.
  io::Async<Status> drop_unneeded(std::string team, std::vector<std::string> images);

  io::Loop& loop_;
  maker::Host& host_;
  std::shared_ptr<fleet::SharedDatabase> database_;
  const Options options_;
};

}  // namespace caisson::api
