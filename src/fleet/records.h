// What a fleet must find again when it starts anew: one record a sandbox.
//
// The interface; over the database in fleet/database_records.h, in memory for tests.
#pragma once

#include <string>
#include <vector>

#include "fleet/fleet.h"
#include "fleet/host.h"
#include "fleet/start_command.h"
#include "io/async.h"

namespace caisson::fleet {

// Tokens are not kept: they follow from the server's secret and the id.
struct Record {
  std::string team;
  SandboxView view;
  std::string image, host_id, user, workdir;
  Recipe recipe;  // with what the client asked for and the team may have
  bool secure = true;
  std::chrono::seconds timeout{0};  // what the client asked for last, for a resume by traffic
  std::map<std::string, std::string> env;
  StartCommand start;  // which runs wherever its processes are new
  // Where its network needs keys: their number, and its secrets as the vault has sealed them.
  std::string keys, secrets = {};
};

// What there is of a record that cannot be read: its sandbox may run on.
struct Damaged {
  std::string team, id, host_id;
  std::string why;
};
struct AllRecords {
  std::vector<Record> records;
  std::vector<Damaged> damaged;
};

// An entry of a sandbox's log.
struct Noted {
  std::string team, sandbox;
  Event event;
};

class Records {
 public:
  virtual ~Records() = default;
  // Whether put() would take what a client gave; ids may be empty still. Looks nothing up. Error:
  // invalid_argument.
  virtual Status check(const Record& record) const = 0;
  // In place of one with the same id.
  virtual io::Async<Status> put(Record record) = 0;
  virtual io::Async<Status> remove(std::string id) = 0;
  // Error: nothing can be read.
  virtual io::Async<Result<AllRecords>> all() = 0;
  // Logs outlive records.
  virtual io::Async<Status> add_events(std::vector<Noted> events) = 0;
  // Error: not_found where nothing is known of such a sandbox of the team.
  virtual io::Async<Result<std::vector<Event>>> events(std::string team, std::string id,
                                                       EventQuery query) = 0;
};

}  // namespace caisson::fleet
