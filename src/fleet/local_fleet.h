// The fleet of one machine: sandboxes of this host's supervisors.
//
// Its sandboxes are in memory, their records in the database (fleet/records.h), written before a
// client is told of a change; a fleet that starts again takes up what still runs and forgets what
// does not. A clock of its own looks once a second at deadlines and takes samples. Belongs to the
// loop.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "fleet/fleet.h"
#include "fleet/local_sandbox.h"
#include "fleet/pool.h"
#include "fleet/quota.h"
#include "fleet/records.h"
#include "fleet/start_command.h"
#include "io/turns.h"

namespace caisson::fleet {

// A template as the fleet needs it.
struct Template {
  std::string id;     // [a-z0-9-_]+; of an image that stands for itself its name
  std::string alias;  // may be empty
  Recipe recipe;
  std::string image_id;            // what the recipe's image means now; empty: it is an id itself
  Limits limits = Limits::kUsual;  // of the recipe
  std::map<std::string, std::string> env;
  StartCommand start;  // runs, and is ready, before a client has the sandbox
};

struct FleetOptions {
  Pool::Sizes pool;
  std::size_t pool_in_use = 0;  // Pool::Options::places
  // Recipe::network of sandboxes that are made, whatever they are to reach: one that is ready fits
  // them all, and what it may reach is set when it is taken. Empty: as the recipe says.
  std::string made_network;
  // Recipe::served_domain of all of them.
  std::string served_domain;
  // Whose secrets are sealed by it. Null: there are none.
  std::shared_ptr<const vault::Vault> vault;
  // Whether every sandbox with a network trusts its gateway, so that it may be told later to
  // inspect TLS and get secrets; else those alone that are made so.
  bool inspect_later = false;
  // Values of those of these names that the team keeps; null: it keeps none. On the loop, as above.
  std::function<io::Async<Result<std::vector<vault::GivenSecret>>>(std::string team,
                                                                   std::vector<std::string> names)>
      kept_values;
  // Error: not_found, with what there is. On the loop; looks nothing up that blocks.
  std::function<io::Async<Result<Template>>(std::string team, std::string name)> find_template;
  // Error: not_found (the team). On the loop, as above.
  std::function<io::Async<Result<Quota>>(std::string team)> quota;
  std::size_t most_running = 1000;  // of all teams
  // Builds of templates that go on, of a team or (nullopt) of all: each counts as a sandbox that
  // runs. Null: there are none.
  std::function<std::size_t(std::optional<std::string_view> team)> building;
  std::size_t most_paused = 1000;  // of all teams; those whose memory is kept
  // How long a sandbox lives whose client said nothing; less where its team may have only less.
  std::chrono::seconds usual_life{300};
  // Tokens of a sandbox, the same at every call ("access", "traffic").
  std::function<std::string(std::string_view id, std::string_view purpose)> token;
  // A sandbox that has not booted anew after this time is ended.
  std::chrono::milliseconds reboot_time = BoxClient::kAnswerTime;
  // When a record that cannot be read is looked at again, first; later less and less often.
  std::chrono::milliseconds first_retry = std::chrono::seconds(1);
  // In which images are made of sandboxes, which takes long, by team; null: as they are asked for.
  std::shared_ptr<io::Turns> image_turns;
};

class LocalFleet final : public Fleet {
 public:
  // The host outlives the loop.
  LocalFleet(io::Loop& loop, Host& host, FleetOptions options, std::unique_ptr<Records> records);
  ~LocalFleet() override;

  struct Adopted {
    // `unreached`: their supervisors are there, but speak no version of ours, or do not answer.
    // `damaged`: their records cannot be read.
    std::size_t running = 0, paused = 0, lost = 0, unreached = 0, damaged = 0;
  };
  // Once, before anything else: takes up the sandboxes of an earlier server. What is
  // unreached is left as it is, with its record, to a server that knows more. What is damaged is
  // left too, and looked at again: it is taken up once its record can be read.
  io::Async<Result<Adopted>> adopt();
  // The host's ids of those that it has, and of those that were left.
  std::set<std::string> host_ids() const;
  // Once: from now on sandboxes are made ahead.
  void start_pool();
  // Ends those that nobody has, and writes what is still to be written; for the server's end.
  io::Async<void> close();

  // Whether the team may have one more sandbox that runs, or a build. Errors: resource_exhausted,
  // and those of its quota. True until the loop's next turn; nobody's refusal is counted.
  io::Async<Status> room(std::string team);

  io::Async<Result<std::shared_ptr<Served>>> create(std::string team, NewSandbox wanted) override;
  std::shared_ptr<Served> find(std::string_view team, std::string_view id) override;
  std::shared_ptr<Served> find_any(std::string_view id) override;
  std::vector<std::shared_ptr<Served>> all_running() override;
  Result<ListPage> list(std::string_view team, const ListQuery& query) override;
  io::Async<Status> kill(std::string team, std::string id) override;
  io::Async<Status> set_network(std::string team, std::string id, policy::NetworkPolicy network,
                                std::string fields,
                                std::vector<vault::GivenSecret> secrets) override;
  io::Async<Status> renew_secret(std::string team, std::string name) override;
  io::Async<Status> set_timeout(std::string team, std::string id, std::chrono::seconds from_now,
                                Timeout how) override;
  io::Async<Status> pause(std::string team, std::string id, Keep keep) override;
  io::Async<Result<bool>> connect(std::string team, std::string id, std::chrono::seconds timeout,
                                  Resume how) override;
  io::Async<Result<Snapshot>> snapshot(std::string team, std::string id) override;
  io::Async<Result<std::vector<Result<std::shared_ptr<Served>>>>> fork(std::string team,
                                                                       std::string id,
                                                                       std::chrono::seconds timeout,
                                                                       std::size_t count) override;
  io::Async<bool> resume_for_traffic(std::shared_ptr<Served> sandbox) override;
  Result<std::vector<Sample>> samples(std::string_view team, std::string_view id,
                                      std::optional<WallClock::time_point> from,
                                      std::optional<WallClock::time_point> to) override;

  io::Async<Result<std::vector<Event>>> events(std::string team, std::string id,
                                               EventQuery query) override;
  Counts counts() const override;
  Pool::Counts pool_counts() const;
  std::size_t size() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace caisson::fleet
