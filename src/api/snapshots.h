// What the APIs know of snapshots: images of sandboxes' files, by id and perhaps by name.
//
// An interface, so that handlers are tested without a database. Belongs to the loop.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "fleet/fleet.h"
#include "io/async.h"

namespace caisson::api {

struct SnapshotView {
  std::string id;                  // by which clients make sandboxes of it: an id, or TEAM/NAME:TAG
  std::vector<std::string> names;  // TEAM/NAME
};

// Newest first.
struct SnapshotQuery {
  std::optional<std::string> sandbox, name;
  std::size_t limit = 100;
  std::string after;  // next_token of the page before
};
struct SnapshotPage {
  std::vector<SnapshotView> snapshots;
  std::string next_token;  // empty: that was all
};

class Snapshots {
 public:
  virtual ~Snapshots() = default;
  // Whether add() with that name (empty: none) would succeed now: for before the image is made.
  // Errors: those of add().
  virtual io::Async<Status> check(std::string team, std::string name) = 0;
  // Takes the place of the team's snapshot of that name, whose id stays. Errors: invalid_argument
  // (the name is none), already_exists (it is a template's), resource_exhausted (the team has as
  // many as it may). After an error the image is not kept, unless something else needs it.
  virtual io::Async<Result<SnapshotView>> add(std::string team, std::string sandbox,
                                              std::string name, fleet::Snapshot taken) = 0;
  // Error: invalid_argument for a token that is none.
  virtual io::Async<Result<SnapshotPage>> list(std::string team, SnapshotQuery query) = 0;
  // By id or name. Error: not_found, where the team has no such snapshot.
  virtual io::Async<Status> remove(std::string team, std::string name) = 0;
};

}  // namespace caisson::api
