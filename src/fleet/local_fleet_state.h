// What a LocalFleet keeps and does, shared by the files that make it up: local_fleet.cpp (finding,
// ending, pausing, time), local_fleet_adopting.cpp (the start of a server) and
// local_fleet_making.cpp (who may have one more, making, snapshots and forks). Nothing here is
// meant for others: they include local_fleet.h.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "fleet/local_fleet.h"

namespace caisson::fleet {

using std::chrono::seconds;

// How long the removal of a sandbox is waited for.
inline constexpr auto kRemovalTime = seconds(10);

inline Error no_sandbox(std::string_view id) {
  return Error::not_found("sandbox \"" + std::string(id) + "\" was not found");
}

struct LocalFleet::State : std::enable_shared_from_this<LocalFleet::State> {
  State(io::Loop& owner, Host& of, FleetOptions chosen, std::unique_ptr<Records> kept)
      : loop(owner),
        host(of),
        options(std::move(chosen)),
        records(std::move(kept)),
        pool(owner, made_ahead(options), of,
             {.places = options.pool_in_use, .make_keys = keys_for_all(options)}) {}
  static std::function<Result<vault::NetworkKeys>()> keys_for_all(const FleetOptions& options) {
    if (!options.inspect_later || options.vault == nullptr) return nullptr;
    return [vault = options.vault] { return vault->make_keys(); };
  }
  // The pool's sizes by recipes as take() asks for them.
  static Pool::Sizes made_ahead(const FleetOptions& options) {
    Pool::Sizes sizes;
    for (const auto& [wanted, number] : options.pool) {
      Recipe recipe = wanted;
      if (!options.made_network.empty()) recipe.network = options.made_network;
      recipe.served_domain = options.served_domain;
      sizes[recipe] += number;
    }
    return sizes;
  }

  io::Loop& loop;
  Host& host;
  const FleetOptions options;
  const std::unique_ptr<Records> records;
  Pool pool;
  struct Entry {
    std::shared_ptr<LocalSandbox> sandbox;
    Record record;  // its view is the sandbox's
  };
  std::map<std::string, Entry, std::less<>> entries;
  using Counted = std::map<std::string, std::size_t, std::less<>>;  // by team
  Counted creating, pausing;
  std::set<std::string> timing_out;  // ids
  std::vector<Noted> noted;          // to be written
  std::uint64_t renewals = 0;        // of secrets
  std::uint64_t refused_by_quota = 0, refused_full = 0, events_lost = 0;
  std::set<std::string> left_alone;  // the host's ids of those that were not taken up
  bool closed = false;

  Entry* find(std::string_view team, std::string_view id) {
    const auto found = entries.find(id);
    const bool there = found != entries.end() && found->second.record.team == team &&
                       !found->second.sandbox->ended();
    return there ? &found->second : nullptr;
  }
  static bool is(const Entry& entry, fleet::State state) {
    return !entry.sandbox->ended() && entry.sandbox->view().state == state;
  }
  std::size_t count(fleet::State state, std::string_view team) const {
    return static_cast<std::size_t>(std::ranges::count_if(entries, [&](const auto& entry) {
      return is(entry.second, state) && entry.second.record.team == team;
    }));
  }
  std::size_t count(fleet::State state) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(entries, [&](const auto& entry) { return is(entry.second, state); }));
  }
  std::size_t builds(std::optional<std::string_view> team) const {
    return options.building ? options.building(team) : 0;
  }
  // What is being made counts as if it ran, and so do builds.
  std::size_t running(std::string_view team) const {
    const auto under_way = creating.find(team);
    return count(fleet::State::kRunning, team) + builds(team) +
           (under_way == creating.end() ? 0 : under_way->second);
  }
  std::size_t running() const {
    std::size_t all = count(fleet::State::kRunning) + builds(std::nullopt);
    for (const auto& [team, under_way] : creating) all += under_way;
    return all;
  }
  // Whether the team may live so long with one, and have one more that runs. What it answers is
  // true until the loop's next turn.
  static Status check_life(const Quota& quota, seconds timeout);
  enum class Room : std::uint8_t { kFree, kTeamFull, kServerFull };
  Room room(const Quota& quota, std::string_view team) const;
  // The error of a room that is full.
  Error full(Room room, const Quota& quota, std::string_view team) const;
  Status check(const Quota& quota, std::string_view team, seconds timeout);
  // Paused ones whose memory is kept, and those that become so; of all teams: nullopt.
  std::size_t held(std::optional<std::string_view> team) const;
  // Whether the team may have one more of them, as above.
  Status check_held(const Quota& quota, std::string_view team);
  static void count_out(Counted& counted, const std::string& team) {
    if (--counted[team] == 0) counted.erase(team);
  }
  // Connects to a sandbox of an earlier server; tries again where it is there and does not answer.
  io::Async<Result<std::unique_ptr<BoxClient>>> reach(std::string host_id);
  // Takes a sandbox of an earlier server up, where it is still there.
  enum class Found : std::uint8_t { kRunning, kPaused, kLost, kUnreached };
  io::Async<Found> adopt(Record record);
  // Until all of these are taken up, or gone.
  static io::Async<void> retry_damaged(std::shared_ptr<State> self, std::vector<Damaged> damaged);
  // Of one whose record still cannot be read: whether it has ended, and is forgotten.
  io::Async<bool> forget_if_gone(Damaged one);
  void note_left(const std::string& team, const std::string& id, std::string message,
                 const Error& why);
  // The state that its supervisor tells.
  static void believe(std::string_view usage, SandboxView& view);
  void add(std::shared_ptr<LocalSandbox> sandbox, Record record);
  // What its commands get unless they say otherwise.
  static std::map<std::string, std::string> variables_of(const Record& record);
  // Stores the record of a new sandbox and gives it its time, both at once: before the answer no
  // client knows of it, and a server that starts again ends one that has no record.
  io::Async<Status> claim(std::shared_ptr<LocalSandbox> sandbox, Record record);
  // Writes what has changed.
  io::Async<Status> save(std::string id);
  void forget(LocalSandbox& ended);
  void note(const std::string& team, const std::string& id, Event event);
  io::Async<void> write_noted();
  static io::Async<void> write(std::shared_ptr<State> self) { co_await self->write_noted(); }
  void fill_tokens(Record& record) const;
  static Record record_of(std::string team, const Template& from, NewSandbox wanted);

  // Counted among the team's while it is made.
  io::Async<Result<std::shared_ptr<Served>>> make_counted(std::string team, Quota quota,
                                                          NewSandbox wanted,
                                                          std::optional<Template> like);
  // A sandbox for `recipe`, with its network; `image_id` as Pool::take() has it. Where the pool
  // gave it keys they come into the record, whose secrets it gets.
  io::Async<Result<Ready>> take(Recipe recipe, std::string image_id, Record& record);
  // One whose network needs keys, which come into the record; its secrets are there.
  io::Async<Result<Ready>> take_with_keys(Recipe recipe, Record& record);
  // `given`, and what the team keeps of the other names that the policy has.
  io::Async<Result<std::vector<vault::GivenSecret>>> values_for(
      std::string team, std::string network, std::vector<vault::GivenSecret> given);
  // What a sandbox's network is to be, told when its turn has come: of what it is then. Nothing: it
  // may stay as it is.
  struct NetworkWish {
    policy::NetworkPolicy network;
    std::string fields;
    std::vector<vault::GivenSecret> secrets;
  };
  using WishOf = std::function<std::optional<NetworkWish>(const Entry&)>;
  // As LocalFleet::set_network(), of a policy that was checked, also of a paused one.
  io::Async<Status> change_network(std::shared_ptr<LocalSandbox> sandbox, WishOf wish_of);
  // Of a sandbox that uses the secret: the network that it has.
  static std::optional<NetworkWish> renewed(const Entry& entry, const std::string& name);
  struct Renewal {
    explicit Renewal(io::Loop& loop) : changed(loop) {}
    std::size_t under_way = 0;
    std::vector<std::string> untold;  // ids of sandboxes that live
    io::Event changed;
  };
  static io::Async<void> renew(std::shared_ptr<State> self, std::shared_ptr<LocalSandbox> sandbox,
                               std::string name, std::shared_ptr<Renewal> all);
  // catch_up() of one that an earlier server has left; what goes wrong stands in its log.
  static io::Async<void> catch_up_later(std::shared_ptr<State> self,
                                        std::shared_ptr<LocalSandbox> sandbox);
  // Tells it its network once more, with what its team keeps now.
  io::Async<Status> catch_up(std::shared_ptr<LocalSandbox> sandbox);
  // Writes it down and tells the gateway, whose text it is then.
  io::Async<Status> tell_network(std::shared_ptr<LocalSandbox> sandbox, NetworkWish wish);
  // Seals the secrets of the record's network, of which it has the values, and gives it the
  // variables of their placeholders. Error: those of Vault::seal(); unimplemented without a vault.
  io::Async<Status> seal_secrets(Record& record, std::vector<vault::GivenSecret> values,
                                 std::string before) const;
  // Vault::text_for().
  io::Async<Result<std::string>> text_for(std::string number, std::string network,
                                          std::string sealed) const;
  // Runs what the template starts; where that fails nothing of the sandbox is left.
  io::Async<Status> start(const Ready& ready, StartCommand what);
  // Of `like`, or of the template that is wanted.
  io::Async<Result<std::shared_ptr<LocalSandbox>>> make(std::string team, Quota quota,
                                                        NewSandbox wanted,
                                                        std::optional<Template> like);
  // A snapshot of it, and what else makes a sandbox like it.
  struct Likeness {
    Template like;
    NewSandbox wanted;
  };
  io::Async<Result<Likeness>> liken(std::string team, std::string id);
  // `why`: for the log. kMemory counts; error: resource_exhausted.
  using When = LocalSandbox::Pause;
  io::Async<Status> pause(std::shared_ptr<LocalSandbox> sandbox, Keep keep, When when,
                          std::string_view why);
  // At its time. Where no more memory may be kept, the files are.
  io::Async<Status> pause_at_end(std::shared_ptr<LocalSandbox> sandbox, When when);
  io::Async<Status> resume(std::shared_ptr<LocalSandbox> sandbox, seconds timeout, Resume how,
                           std::string_view why);
  static bool kill(LocalSandbox& sandbox, std::string_view why);
  void look_at_deadlines();
  static io::Async<void> clock(std::shared_ptr<State> self);
  static io::Async<void> timed_out(std::shared_ptr<State> self,
                                   std::shared_ptr<LocalSandbox> sandbox);
};

}  // namespace caisson::fleet
