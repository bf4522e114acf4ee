#include <algorithm>
#include <tuple>
#include <utility>

#include "base/time_text.h"
#include "egress/secrets/sealed.h"
#include "fleet/local_fleet_state.h"
#include "fleet/network.h"
#include "fleet/recipe.h"
#include "fleet/shape.h"
#include "io/race.h"

namespace caisson::fleet {

Status LocalFleet::State::check_life(const Quota& quota, seconds timeout) {
  if (timeout <= quota.longest) return {};
  return fail(Error::invalid("timeout: found " + std::to_string(timeout.count()) +
                             " seconds, allowed are at most " +
                             std::to_string(quota.longest.count())));
}

LocalFleet::State::Room LocalFleet::State::room(const Quota& quota, std::string_view team) const {
  if (running(team) >= quota.sandboxes) return Room::kTeamFull;
  return running() < options.most_running ? Room::kFree : Room::kServerFull;
}

Error LocalFleet::State::full(Room room, const Quota& quota, std::string_view team) const {
  if (room == Room::kServerFull)
    return Error::exhausted("the server runs " + std::to_string(options.most_running) +
                            " sandboxes, which is as many as it may");
  const std::size_t building = builds(team);
  return Error::exhausted(
      "you have " + std::to_string(quota.sandboxes) + " running sandboxes" +
      (building == 0 ? "" : ", of which " + std::to_string(building) + " build templates") +
      ", which is as many as your team may have");
}

Status LocalFleet::State::check(const Quota& quota, std::string_view team, seconds timeout) {
  TRY(check_life(quota, timeout));
  const Room found = room(quota, team);
  if (found == Room::kFree) return {};
  ++(found == Room::kTeamFull ? refused_by_quota : refused_full);
  return fail(full(found, quota, team));
}

io::Async<Status> LocalFleet::room(std::string team) {
  const auto state = state_;
  CO_TRY_ASSIGN(const Quota quota, co_await state->options.quota(team));
  const State::Room found = state->room(quota, team);
  if (found == State::Room::kFree) co_return Status();
  co_return fail(state->full(found, quota, team));
}

std::size_t LocalFleet::State::held(std::optional<std::string_view> team) const {
  const auto counts = [&](const std::string& of) { return !team.has_value() || of == *team; };
  std::size_t number = 0;
  for (const auto& [id, entry] : entries) {
    if (counts(entry.record.team) && is(entry, fleet::State::kPaused) &&
        entry.sandbox->view().paused_keeps == Keep::kMemory)
      ++number;
  }
  for (const auto& [of, under_way] : pausing) {
    if (counts(of)) number += under_way;
  }
  return number;
}

Status LocalFleet::State::check_held(const Quota& quota, std::string_view team) {
  if (held(team) >= quota.paused) {
    ++refused_by_quota;
    return fail(Error::exhausted("you have " + std::to_string(quota.paused) +
                                 " paused sandboxes with their memory, which is as many as your "
                                 "team may have"));
  }
  if (held(std::nullopt) < options.most_paused) return {};
  ++refused_full;
  return fail(Error::exhausted("the server has " + std::to_string(options.most_paused) +
                               " paused sandboxes with their memory, which is as many as it may"));
}

void LocalFleet::State::fill_tokens(Record& record) const {
  SandboxView& view = record.view;
  if (record.secure) view.access_token = options.token(view.id, "access");
  if (!view.public_traffic) view.traffic_token = options.token(view.id, "traffic");
}

io::Async<Result<std::shared_ptr<Served>>> LocalFleet::State::make_counted(
    std::string team, Quota quota, NewSandbox wanted, std::optional<Template> like) {
  CO_TRY(check(quota, team, *wanted.timeout));
  ++creating[team];
  auto made = co_await make(team, quota, std::move(wanted), std::move(like));
  count_out(creating, team);
  if (!made.has_value()) co_return fail(std::move(made).error());
  co_return std::shared_ptr<Served>(std::move(*made));
}

io::Async<Result<Ready>> LocalFleet::State::take(Recipe recipe, std::string image_id,
                                                 Record& record) {
  std::string network = recipe.network;
  if (!options.made_network.empty()) recipe.network = options.made_network;
  recipe.served_domain = options.served_domain;
  const bool fits = recipe.network == network;
  CO_TRY_ASSIGN(Ready ready, co_await pool.take(std::move(recipe), std::move(image_id)));
  record.keys = ready.keys;
  if (fits) co_return ready;
  Result<std::string> text = std::move(network);
  if (!record.keys.empty()) text = co_await text_for(record.keys, std::move(*text), record.secrets);
  Status set;
  if (text.has_value())
    set = co_await apply_network(*ready.client, std::move(*text));
  else
    set = fail(std::move(text).error());
  if (set.has_value()) co_return ready;
  ready.client->shutdown();
  co_await ready.client->wait_gone_until(io::Clock::now() + kRemovalTime);
  co_return fail(set.error());
}

io::Async<Status> LocalFleet::State::start(const Ready& ready, StartCommand what) {
  if (what.command.empty()) co_return Status();
  StartOptions how{.user = ready.made.user, .env = own_variables(ready.made.id)};
  Status started = co_await start_and_wait(loop, *ready.client, std::move(what), std::move(how));
  if (started.has_value()) co_return started;
  ready.client->shutdown();
  co_await ready.client->wait_gone_until(io::Clock::now() + kRemovalTime);
  co_return started;
}

// What is known of a sandbox before it is made.
Record LocalFleet::State::record_of(std::string team, const Template& from, NewSandbox wanted) {
  Record record{.team = std::move(team),
                .recipe = from.recipe,
                .secure = wanted.secure,
                .timeout = *wanted.timeout,
                .env = std::move(wanted.env),
                .start = from.start};
  // The client's go before the template's.
  record.env.insert(from.env.begin(), from.env.end());
  SandboxView& view = record.view;
  view.template_id = from.id;
  view.alias = from.alias;
  view.cpus = static_cast<std::uint32_t>((from.recipe.cpu_milli.value_or(0) + 999) / 1000);
  view.memory_mib = from.recipe.memory_bytes.value_or(0) >> 20;
  view.disk_mib = from.recipe.disk_bytes.value_or(0) >> 20;
  view.metadata = std::move(wanted.metadata);
  view.on_timeout = wanted.on_timeout;
  view.on_timeout_keeps = wanted.on_timeout_keeps;
  view.auto_resume = wanted.auto_resume;
  view.public_traffic = wanted.public_traffic;
  view.mask_request_host = std::move(wanted.mask_request_host);
  view.network = std::move(wanted.network_fields);
  view.has_network = !from.recipe.network.empty();
  return record;
}

io::Async<Result<std::shared_ptr<LocalSandbox>>> LocalFleet::State::make(
    std::string team, Quota quota, NewSandbox wanted, std::optional<Template> like) {
  Template from;
  if (like.has_value()) {
    from = std::move(*like);
  } else {
    CO_TRY_ASSIGN(from, co_await options.find_template(team, wanted.template_name));
  }
  if (!wanted.spec.empty()) {
    auto asked = lay_over(from.recipe, wanted.spec);
    if (!asked.has_value()) co_return fail(std::move(asked).error().with("spec"));
    // What nobody asked for is only usual.
    CO_TRY_ASSIGN(const Recipe usual, recipe_within(quota, from.recipe, from.limits));
    from.recipe = merge_limits(usual, from.recipe, std::move(*asked));
    from.limits = Limits::kAsked;
  }
  if (wanted.network.has_value()) {
    CO_TRY(check_served(*wanted.network));
    from.recipe.network = served_network(std::move(*wanted.network));
  }
  // One that is made with a gateway says so, also where nothing may leave.
  if (!options.made_network.empty() && from.recipe.network.empty())
    from.recipe.network = served_network({});
  CO_TRY(check_network(from.recipe.network));
  CO_TRY_ASSIGN(from.recipe, recipe_within(quota, std::move(from.recipe), from.limits));
  CO_TRY(check_privileges(quota, from.recipe));
  CO_TRY_ASSIGN(const bool keyed, needs_keys(from.recipe.network));
  std::vector<vault::GivenSecret> secrets = std::move(wanted.secrets);
  const std::string sealed = std::move(wanted.sealed_secrets);
  Record record = record_of(std::move(team), from, std::move(wanted));
  const std::uint64_t renewals_before = renewals;
  if (keyed) {
    CO_TRY_ASSIGN(secrets,
                  co_await values_for(record.team, from.recipe.network, std::move(secrets)));
    CO_TRY(co_await seal_secrets(record, std::move(secrets), sealed));
    // As long as what its gateway will be told.
    CO_TRY(check_network(egress::join_policy(record.recipe.network, record.secrets)));
  }
  // Judged before a sandbox is taken for it.
  CO_TRY(records->check(record));
  Ready ready;
  if (keyed && (!options.inspect_later || options.made_network.empty())) {
    CO_TRY_ASSIGN(ready, co_await take_with_keys(from.recipe, record));
  } else {
    CO_TRY_ASSIGN(ready, co_await take(from.recipe, std::move(from.image_id), record));
  }
  CO_TRY(co_await start(ready, std::move(from.start)));
  record.image = ready.made.image;
  record.host_id = ready.made.id;
  record.user = ready.made.user;
  record.workdir = ready.made.workdir;
  SandboxView& view = record.view;
  view.id = ready.made.id;
  view.started = WallClock::now();
  view.end = view.started + record.timeout;
  fill_tokens(record);
  auto sandbox = std::make_shared<LocalSandbox>(loop, record.team, view, std::move(ready.made),
                                                std::move(ready.client));
  auto claimed = co_await claim(sandbox, record);
  if (!claimed.has_value()) {
    sandbox->kill();
    const Status ignored = co_await records->remove(record.view.id);
    co_return fail(std::move(claimed).error());
  }
  add(sandbox, std::move(record));
  if (keyed && renewals != renewals_before) {
    const Status caught_up = co_await catch_up(sandbox);
    if (!caught_up.has_value()) {
      sandbox->kill();
      co_return fail(caught_up.error());
    }
  }
  sandbox->note(Event::Level::kInfo, "the sandbox was made",
                {{"template", sandbox->view().template_id}});
  if (sandbox->ended()) {
    forget(*sandbox);
    co_return fail(Error::unavailable("the sandbox ended before it was used"));
  }
  co_return sandbox;
}

io::Async<Status> LocalFleet::State::claim(std::shared_ptr<LocalSandbox> sandbox, Record record) {
  struct Results {
    Status stored, timed;
  };
  auto results = std::make_shared<Results>();
  auto store = [](std::shared_ptr<State> self, Record kept,
                  std::shared_ptr<Results> to) -> io::Async<void> {
    to->stored = co_await self->records->put(std::move(kept));
  };
  auto time = [](std::shared_ptr<LocalSandbox> of, WallClock::time_point end,
                 std::shared_ptr<Results> to) -> io::Async<void> {
    to->timed = co_await of->set_end(end);
  };
  const WallClock::time_point end = record.view.end;
  co_await io::both(store(shared_from_this(), std::move(record), results),
                    time(std::move(sandbox), end, results));
  if (!results->stored.has_value()) co_return std::move(results->stored);
  co_return std::move(results->timed);
}

io::Async<Result<LocalFleet::State::Likeness>> LocalFleet::State::liken(std::string team,
                                                                        std::string id) {
  const Entry* entry = find(team, id);
  if (entry == nullptr) co_return fail(no_sandbox(id));
  const auto sandbox = entry->sandbox;
  Record record = entry->record;
  SandboxView view = sandbox->view();
  auto work = [on = &host, host_id = sandbox->host_id(), image = record.image] {
    return on->take_snapshot(host_id, image);
  };
  const io::Turns::Turn turn = co_await io::Turns::take(options.image_turns, record.team);
  CO_TRY_ASSIGN(std::string image, co_await sandbox->with_state_kept(std::move(work)));
  Likeness found;
  // What it may reach may have been changed while its files were read.
  const Entry* now = find(team, id);
  if (now == nullptr) co_return fail(no_sandbox(id));
  record.recipe.network = now->record.recipe.network;
  record.secrets = now->record.secrets;
  view.network = now->sandbox->view().network;
  found.like = {.id = view.template_id,
                .alias = view.alias,
                .recipe = record.recipe,
                .env = record.env,
                .start = record.start};
  found.like.recipe.image = std::move(image);
  found.wanted = {.timeout = record.timeout,
                  .on_timeout = view.on_timeout,
                  .on_timeout_keeps = view.on_timeout_keeps,
                  .auto_resume = view.auto_resume,
                  .secure = record.secure,
                  .public_traffic = view.public_traffic,
                  .mask_request_host = view.mask_request_host,
                  .metadata = view.metadata,
                  .network_fields = view.network,
                  .sealed_secrets = record.secrets};
  co_return found;
}

io::Async<Result<std::shared_ptr<Served>>> LocalFleet::create(std::string team, NewSandbox wanted) {
  const auto state = state_;
  CO_TRY_ASSIGN(const Quota quota, co_await state->options.quota(team));
  const seconds timeout =
      wanted.timeout.value_or(std::min(state->options.usual_life, quota.longest));
  wanted.timeout = timeout;
  co_return co_await state->make_counted(std::move(team), quota, std::move(wanted), std::nullopt);
}

io::Async<Result<Snapshot>> LocalFleet::snapshot(std::string team, std::string id) {
  const auto state = state_;
  CO_TRY_ASSIGN(const State::Likeness found, co_await state->liken(std::move(team), std::move(id)));
  Recipe recipe = found.like.recipe;
  // A value is the sandbox's, and no template's.
  CO_TRY_ASSIGN(recipe.network, without_secrets(recipe.network));
  CO_TRY_ASSIGN(std::string shape, encode_shape({.recipe = recipe, .start = found.like.start}));
  co_return Snapshot{.image = recipe.image,
                     .cpu_milli = recipe.cpu_milli.value_or(0),
                     .memory = recipe.memory_bytes.value_or(0),
                     .disk = recipe.disk_bytes.value_or(0),
                     .shape = std::move(shape)};
}

io::Async<Result<std::vector<Result<std::shared_ptr<Served>>>>> LocalFleet::fork(
    std::string team, std::string id, seconds timeout, std::size_t count) {
  const auto state = state_;
  CO_TRY_ASSIGN(const Quota quota, co_await state->options.quota(team));
  // Before anything is read.
  CO_TRY(state->check(quota, team, timeout));
  CO_TRY_ASSIGN(State::Likeness found, co_await state->liken(team, std::move(id)));
  found.wanted.timeout = timeout;
  // All at once; what makes them takes a few at a time.
  struct Made {
    explicit Made(io::Loop& loop) : changed(loop) {}
    std::vector<Result<std::shared_ptr<Served>>> forks;
    io::Event changed;
  };
  const auto made = std::make_shared<Made>(state->loop);
  auto make = [](std::shared_ptr<State> self, std::string owner, Quota may, State::Likeness one,
                 std::shared_ptr<Made> all) -> io::Async<void> {
    auto fork = co_await self->make_counted(std::move(owner), may, one.wanted, one.like);
    all->forks.push_back(std::move(fork));
    all->changed.notify();
  };
  for (std::size_t begun = 0; begun < count; ++begun)
    state->loop.spawn(make(state, team, quota, found, made));
  while (made->forks.size() < count) co_await made->changed.wait();
  co_return std::move(made->forks);
}

}  // namespace caisson::fleet
