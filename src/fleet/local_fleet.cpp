#include "fleet/local_fleet.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/time_text.h"
#include "fleet/page_token.h"
#include "fleet/recipe.h"
#include "io/race.h"

namespace caisson::fleet {

using std::chrono::seconds;

namespace {

constexpr auto kTick = std::chrono::milliseconds(250);
constexpr auto kSampleEvery = seconds(5);
constexpr auto kRemovalTime = seconds(10);
constexpr std::size_t kMostNoted = 4096;
// Who did something to a sandbox, as its log says it.
constexpr std::string_view kRequest = "request", kDeadline = "deadline", kTraffic = "traffic";

Error no_sandbox(std::string_view id) {
  return Error::not_found("sandbox \"" + std::string(id) + "\" was not found");
}

}  // namespace

struct LocalFleet::State : std::enable_shared_from_this<LocalFleet::State> {
  State(io::Loop& owner, Host& of, FleetOptions chosen, std::unique_ptr<Records> kept)
      : loop(owner),
        host(of),
        options(std::move(chosen)),
        records(std::move(kept)),
        pool(owner, options.pool, of) {}

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
  std::uint64_t refused_by_quota = 0, refused_full = 0, events_lost = 0;
  std::set<std::string> unreached;  // the host's ids
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
  // What is being made counts as if it ran.
  std::size_t running(std::string_view team) const {
    const auto under_way = creating.find(team);
    return count(fleet::State::kRunning, team) +
           (under_way == creating.end() ? 0 : under_way->second);
  }
  std::size_t running() const {
    std::size_t all = count(fleet::State::kRunning);
    for (const auto& [team, under_way] : creating) all += under_way;
    return all;
  }
  // Whether the team may live so long with one, and have one more that runs. What it answers is
  // true until the loop's next turn.
  static Status check_life(const Quota& quota, seconds timeout);
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
  // The state that its supervisor tells.
  static void believe(std::string_view usage, SandboxView& view);
  void add(std::shared_ptr<LocalSandbox> sandbox, Record record);
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
  // Of `like`, or of the template that is wanted.
  // Runs what the template starts; where that fails nothing of the sandbox is left.
  io::Async<Status> start(const Ready& ready, StartCommand what);
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

Status LocalFleet::State::check_life(const Quota& quota, seconds timeout) {
  if (timeout <= quota.longest) return {};
  return fail(Error::invalid("timeout: found " + std::to_string(timeout.count()) +
                             " seconds, allowed are at most " +
                             std::to_string(quota.longest.count())));
}

Status LocalFleet::State::check(const Quota& quota, std::string_view team, seconds timeout) {
  TRY(check_life(quota, timeout));
  std::string refusal;
  if (running(team) >= quota.sandboxes) {
    refusal = "you have " + std::to_string(quota.sandboxes) +
              " running sandboxes, which is as many as your team may have";
  }
  if (!refusal.empty()) {
    ++refused_by_quota;
    return fail(Error::exhausted(std::move(refusal)));
  }
  if (running() < options.most_running) return {};
  ++refused_full;
  return fail(Error::exhausted("the server runs " + std::to_string(options.most_running) +
                               " sandboxes, which is as many as it may"));
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

void LocalFleet::State::add(std::shared_ptr<LocalSandbox> sandbox, Record record) {
  std::map<std::string, std::string> env = record.env;
  for (auto& [name, value] : own_variables(record.view.id)) env[name] = std::move(value);
  env["E2B_TEMPLATE_ID"] = record.view.template_id;
  sandbox->set_env(std::move(env));
  const std::weak_ptr<State> weak = weak_from_this();
  sandbox->on_end([weak](LocalSandbox& ended) {
    if (const auto state = weak.lock(); state != nullptr) state->forget(ended);
  });
  sandbox->on_note([weak](const LocalSandbox& of, Event event) {
    if (const auto state = weak.lock(); state != nullptr)
      state->note(of.team(), of.view().id, std::move(event));
  });
  const std::string id = record.view.id;
  entries.insert_or_assign(id, Entry{std::move(sandbox), std::move(record)});
}

void LocalFleet::State::note(const std::string& team, const std::string& id, Event event) {
  if (noted.size() < kMostNoted) {
    noted.push_back({.team = team, .sandbox = id, .event = std::move(event)});
  } else {
    ++events_lost;
  }
}

// A few at a time cost what one does. Who reads afterwards finds them: the database does its work
// in order.
io::Async<void> LocalFleet::State::write_noted() {
  if (noted.empty()) co_return;
  const std::size_t count = noted.size();
  const Status written = co_await records->add_events(std::exchange(noted, {}));
  if (!written.has_value()) events_lost += count;
}

void LocalFleet::State::forget(LocalSandbox& ended) {
  if (!ended.killed()) ended.note(Event::Level::kWarn, "the sandbox ended by itself");
  const std::string id = ended.view().id;
  // Who looks through the entries may be the one that ended it.
  loop.post([self = shared_from_this(), id] {
    const auto found = self->entries.find(id);
    if (found != self->entries.end() && found->second.sandbox->ended()) self->entries.erase(found);
  });
  // One that only lost its connection, as by a guest that broke the protocol, may run on.
  const std::string to_end = ended.killed() ? "" : ended.host_id();
  auto remove = [](std::shared_ptr<State> self, std::string gone,
                   std::string host_id) -> io::Async<void> {
    if (!host_id.empty()) co_await end_sandbox(self->loop, self->host, std::move(host_id));
    // A record that stays is found to be nobody's when the server starts again.
    std::ignore = co_await self->records->remove(std::move(gone));
  };
  if (!closed) loop.spawn(remove(shared_from_this(), id, to_end));
}

io::Async<Status> LocalFleet::State::save(std::string id) {
  const auto found = entries.find(id);
  if (found == entries.end()) co_return fail(no_sandbox(id));
  Record record = found->second.record;
  const auto sandbox = found->second.sandbox;
  record.view = sandbox->view();
  const auto put = co_await records->put(std::move(record));
  // Its removal may have been asked for before this was written.
  if (sandbox->ended()) std::ignore = co_await records->remove(id);
  co_return put;
}

io::Async<Result<std::unique_ptr<BoxClient>>> LocalFleet::State::reach(std::string host_id) {
  constexpr int kTries = 5;
  for (int left = kTries;; --left) {
    auto client = co_await fleet::reach(loop, host, host_id);
    const bool there = client.has_value() || client.error().code() != Code::kNotFound;
    if (client.has_value() || !there || left == 1) co_return client;
    co_await io::Loop::sleep(kTick);
  }
}

void LocalFleet::State::believe(std::string_view usage, SandboxView& view) {
  const auto fields = proto::FieldReader::parse(usage);
  if (!fields.has_value() || !fields->has(proto::Tag::kFrozen)) return;
  const bool frozen = fields->number_or_none(proto::Tag::kFrozen).value_or(0) != 0;
  const auto state = frozen ? fleet::State::kPaused : fleet::State::kRunning;
  if (state == view.state) return;
  view.state = state;
  // A pause or a resume that was not written down: it counts from now.
  if (frozen) view.end = WallClock::now();
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
                .env = std::move(wanted.env)};
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
  CO_TRY_ASSIGN(from.recipe, recipe_within(quota, std::move(from.recipe), from.limits));
  Record record = record_of(std::move(team), from, std::move(wanted));
  // Judged before a sandbox is taken for it.
  CO_TRY(records->check(record));
  CO_TRY_ASSIGN(Ready ready, co_await pool.take(from.recipe));
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
  const Record record = entry->record;
  const SandboxView view = sandbox->view();
  auto work = [on = &host, host_id = sandbox->host_id(), image = record.image] {
    return on->take_snapshot(host_id, image);
  };
  const io::Turns::Turn turn = co_await io::Turns::take(options.image_turns, record.team);
  CO_TRY_ASSIGN(std::string image, co_await sandbox->with_state_kept(std::move(work)));
  Likeness found;
  found.like = {
      .id = view.template_id, .alias = view.alias, .recipe = record.recipe, .env = record.env};
  found.like.recipe.image = std::move(image);
  found.wanted = {.timeout = record.timeout,
                  .on_timeout = view.on_timeout,
                  .on_timeout_keeps = view.on_timeout_keeps,
                  .auto_resume = view.auto_resume,
                  .secure = record.secure,
                  .public_traffic = view.public_traffic,
                  .mask_request_host = view.mask_request_host,
                  .metadata = view.metadata};
  co_return found;
}

io::Async<Status> LocalFleet::State::pause(std::shared_ptr<LocalSandbox> sandbox, Keep keep,
                                           When when, std::string_view why) {
  const std::string team = sandbox->team();
  if (keep == Keep::kMemory) {
    // A quota that cannot be read ends no sandbox: the server's limit holds still.
    const auto quota = co_await options.quota(team);
    CO_TRY(check_held(quota.has_value() ? *quota : Quota(), team));
    ++pausing[team];
  }
  const auto paused = co_await sandbox->freeze(keep, when);
  if (keep == Keep::kMemory) count_out(pausing, team);
  CO_TRY(paused);
  if (!*paused) co_return Status{};
  sandbox->note(Event::Level::kInfo, "the sandbox was paused", {{"by", std::string(why)}});
  co_return co_await save(sandbox->view().id);
}

io::Async<Status> LocalFleet::State::pause_at_end(std::shared_ptr<LocalSandbox> sandbox,
                                                  When when) {
  const Keep keep = sandbox->view().on_timeout_keeps;
  auto paused = co_await pause(sandbox, keep, when, kDeadline);
  const bool full = !paused.has_value() && paused.error().code() == Code::kResourceExhausted;
  if (!full || keep == Keep::kFiles || sandbox->ended() ||
      sandbox->view().state == fleet::State::kPaused)
    co_return paused;
  sandbox->note(Event::Level::kWarn, "the sandbox's memory could not be kept",
                {{"error", paused.error().message()}});
  co_return co_await pause(std::move(sandbox), Keep::kFiles, when, kDeadline);
}

io::Async<Status> LocalFleet::State::resume(std::shared_ptr<LocalSandbox> sandbox, seconds timeout,
                                            Resume how, std::string_view why) {
  // Counted as running while it becomes so.
  const std::string team = sandbox->team();
  ++creating[team];
  const auto thawed = co_await sandbox->thaw(WallClock::now() + timeout, how);
  count_out(creating, team);
  CO_TRY(thawed);
  sandbox->note(Event::Level::kInfo, "the sandbox was resumed", {{"by", std::string(why)}});
  co_return co_await save(sandbox->view().id);
}

bool LocalFleet::State::kill(LocalSandbox& sandbox, std::string_view why) {
  if (sandbox.ended()) return false;
  sandbox.note(Event::Level::kInfo, "the sandbox was killed", {{"by", std::string(why)}});
  return sandbox.kill();
}

io::Async<void> LocalFleet::State::timed_out(std::shared_ptr<State> self,
                                             std::shared_ptr<LocalSandbox> sandbox) {
  const auto paused = co_await self->pause_at_end(sandbox, When::kIfDue);
  self->timing_out.erase(sandbox->view().id);
  // What cannot be paused does not outlive its time.
  if (!paused.has_value() && sandbox->due(WallClock::now())) kill(*sandbox, kDeadline);
}

void LocalFleet::State::look_at_deadlines() {
  const auto now = WallClock::now();
  for (auto& [id, entry] : entries) {
    if (!entry.sandbox->due(now) || entry.sandbox->busy()) continue;
    if (entry.sandbox->view().on_timeout == NewSandbox::OnTimeout::kKill) {
      kill(*entry.sandbox, kDeadline);
    } else if (timing_out.insert(id).second) {
      loop.spawn(timed_out(shared_from_this(), entry.sandbox));
    }
  }
}

io::Async<void> LocalFleet::State::clock(std::shared_ptr<State> self) {
  auto next_sample = io::Clock::now() + kSampleEvery;
  while (!self->closed) {
    co_await io::Loop::sleep(kTick);
    self->look_at_deadlines();
    if (!self->noted.empty()) self->loop.spawn(write(self));
    if (io::Clock::now() < next_sample) continue;
    next_sample = io::Clock::now() + kSampleEvery;
    std::vector<std::shared_ptr<LocalSandbox>> all;
    for (const auto& [id, entry] : self->entries) all.push_back(entry.sandbox);
    for (const auto& sandbox : all) self->loop.spawn(sandbox->sample());
  }
}

LocalFleet::LocalFleet(io::Loop& loop, Host& host, FleetOptions options,
                       std::unique_ptr<Records> records)
    : state_(std::make_shared<State>(loop, host, std::move(options), std::move(records))) {
  loop.spawn(State::clock(state_));
}

LocalFleet::~LocalFleet() {
  state_->closed = true;
  for (auto& [id, entry] : state_->entries) entry.sandbox->on_end(nullptr);
}

io::Async<Result<LocalFleet::Adopted>> LocalFleet::adopt() {
  const auto state = state_;
  Adopted adopted;
  CO_TRY_ASSIGN(std::vector<Record> records, co_await state->records->all());
  for (Record& record : records) {
    const std::string id = record.view.id;
    auto client = co_await state->reach(record.host_id);
    if (!client.has_value() && client.error().code() != Code::kNotFound) {
      ++adopted.unreached;
      state->unreached.insert(record.host_id);
      state->note(record.team, id,
                  {.time = WallClock::now(),
                   .level = Event::Level::kWarn,
                   .message = "the sandbox could not be reached, and was left as it is",
                   .fields = {{"error", client.error().message()}}});
      continue;
    }
    if (!client.has_value()) {
      ++adopted.lost;
      state->note(record.team, id,
                  {.time = WallClock::now(),
                   .level = Event::Level::kWarn,
                   .message = "the sandbox ended while no server ran",
                   .fields = {}});
      std::ignore = co_await state->records->remove(id);
      continue;
    }
    state->fill_tokens(record);
    // What it is now it knows better than what was written about it.
    const auto usage = co_await (*client)->request(proto::ControlOperation::kUsage, {});
    if (usage.has_value()) State::believe(usage->back(), record.view);
    const bool paused = record.view.state == fleet::State::kPaused;
    ++(paused ? adopted.paused : adopted.running);
    auto sandbox = std::make_shared<LocalSandbox>(
        state->loop, record.team, record.view,
        Made{.id = record.host_id, .user = record.user, .workdir = record.workdir},
        std::move(*client));
    state->add(sandbox, std::move(record));
    if (sandbox->ended()) state->forget(*sandbox);
  }
  co_return adopted;
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
  const Recipe& recipe = found.like.recipe;
  co_return Snapshot{.image = recipe.image,
                     .cpu_milli = recipe.cpu_milli.value_or(0),
                     .memory = recipe.memory_bytes.value_or(0),
                     .disk = recipe.disk_bytes.value_or(0)};
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

std::shared_ptr<Served> LocalFleet::find(std::string_view team, std::string_view id) {
  const auto* entry = state_->find(team, id);
  return entry == nullptr ? nullptr : entry->sandbox;
}

std::shared_ptr<Served> LocalFleet::find_any(std::string_view id) {
  const auto found = state_->entries.find(id);
  if (found == state_->entries.end() || found->second.sandbox->ended()) return nullptr;
  return found->second.sandbox;
}

std::vector<std::shared_ptr<Served>> LocalFleet::all_running() {
  std::vector<std::shared_ptr<Served>> all;
  for (const auto& [id, entry] : state_->entries) {
    if (!entry.sandbox->ended() && entry.sandbox->view().state == fleet::State::kRunning)
      all.push_back(entry.sandbox);
  }
  return all;
}

Result<ListPage> LocalFleet::list(std::string_view team, const ListQuery& query) {
  std::vector<SandboxView> views;
  std::size_t running = 0;
  for (const auto& [id, entry] : state_->entries) {
    if (entry.record.team != team || entry.sandbox->ended()) continue;
    const SandboxView& view = entry.sandbox->view();
    if (view.state == fleet::State::kRunning) ++running;
    if (matches(view, query)) views.push_back(view);
  }
  TRY_ASSIGN(ListPage page, page_of(std::move(views), query));
  page.running = running;
  return page;
}

io::Async<Status> LocalFleet::kill(std::string team, std::string id) {
  const auto* entry = state_->find(team, id);
  if (entry == nullptr) co_return fail(no_sandbox(id));
  const auto sandbox = entry->sandbox;
  if (!State::kill(*sandbox, kRequest)) co_return fail(no_sandbox(id));
  // It is gone for clients; removing takes its time beside them, and is awaited so that who kills
  // many does not outrun the host.
  co_await sandbox->wait_removed(kRemovalTime);
  co_return Status{};
}

io::Async<Status> LocalFleet::set_timeout(std::string team, std::string id, seconds from_now,
                                          Timeout how) {
  const auto state = state_;
  if (state->find(team, id) == nullptr) co_return fail(no_sandbox(id));
  CO_TRY_ASSIGN(const Quota quota, co_await state->options.quota(team));
  CO_TRY(State::check_life(quota, from_now));
  auto* entry = state->find(team, id);
  if (entry == nullptr) co_return fail(no_sandbox(id));
  const auto sandbox = entry->sandbox;
  if (sandbox->view().state == fleet::State::kPaused)
    co_return fail(Error::precondition("sandbox \"" + id + "\" is paused"));
  const auto end = WallClock::now() + from_now;
  if (from_now.count() <= 0) {
    // Nothing is extended by it.
    if (how == Timeout::kExtendOnly) co_return Status{};
    entry->record.timeout = seconds(0);
    if (sandbox->view().on_timeout == NewSandbox::OnTimeout::kPause)
      co_return co_await state->pause_at_end(sandbox, State::When::kNow);
    State::kill(*sandbox, kDeadline);
    co_return Status{};
  }
  entry->record.timeout = from_now;
  CO_TRY(co_await sandbox->set_end(end, how));
  sandbox->note(Event::Level::kDebug, "the sandbox's deadline was moved",
                {{"ends", time_text(sandbox->view().end)}});
  co_return co_await state->save(id);
}

io::Async<Status> LocalFleet::pause(std::string team, std::string id, Keep keep) {
  const auto state = state_;
  auto* entry = state->find(team, id);
  if (entry == nullptr) co_return fail(no_sandbox(id));
  if (entry->sandbox->view().state == fleet::State::kPaused)
    co_return fail(Error::precondition("sandbox \"" + id + "\" is paused already"));
  const auto sandbox = entry->sandbox;
  co_return co_await state->pause(sandbox, keep, State::When::kNow, kRequest);
}

io::Async<Result<bool>> LocalFleet::connect(std::string team, std::string id, seconds timeout,
                                            Resume how) {
  const auto state = state_;
  if (state->find(team, id) == nullptr) co_return fail(no_sandbox(id));
  CO_TRY_ASSIGN(const Quota quota, co_await state->options.quota(team));
  auto* entry = state->find(team, id);
  if (entry == nullptr) co_return fail(no_sandbox(id));
  const auto sandbox = entry->sandbox;
  // Of two that resume it the second finds that it runs, and counts nothing.
  co_await sandbox->wait_settled();
  entry = state->find(team, id);
  if (entry == nullptr) co_return fail(no_sandbox(id));
  if (sandbox->view().state == fleet::State::kRunning) {
    CO_TRY(co_await set_timeout(team, id, timeout, Timeout::kExtendOnly));
    co_return false;
  }
  CO_TRY(state->check(quota, team, timeout));
  entry->record.timeout = timeout;
  CO_TRY(co_await state->resume(sandbox, timeout, how, kRequest));
  co_return true;
}

io::Async<bool> LocalFleet::resume_for_traffic(std::shared_ptr<Served> sandbox) {
  const auto state = state_;
  const std::string id = sandbox->view().id, team = sandbox->team();
  const auto quota = co_await state->options.quota(team);
  auto* entry = state->find(team, id);
  if (entry == nullptr) co_return false;
  const auto own = entry->sandbox;
  // Many come at once: one of them resumes it, and counts as one that runs.
  co_await own->wait_settled();
  entry = state->find(team, id);
  if (entry != nullptr && State::is(*entry, fleet::State::kRunning)) co_return true;
  if (entry == nullptr || !entry->sandbox->view().auto_resume ||
      entry->sandbox->view().paused_keeps == Keep::kFiles)
    co_return false;
  const seconds timeout = std::max(entry->record.timeout, seconds(1));
  if (!quota.has_value() || !state->check(*quota, team, timeout).has_value()) co_return false;
  const auto resumed = co_await state->resume(own, timeout, Resume::kWhatWasKept, kTraffic);
  co_return resumed.has_value();
}

Result<std::vector<Sample>> LocalFleet::samples(std::string_view team, std::string_view id,
                                                std::optional<WallClock::time_point> from,
                                                std::optional<WallClock::time_point> to) {
  const auto* entry = state_->find(team, id);
  if (entry == nullptr) return fail(no_sandbox(id));
  std::vector<Sample> chosen;
  for (const Sample& sample : entry->sandbox->samples()) {
    if ((!from.has_value() || sample.time >= *from) && (!to.has_value() || sample.time <= *to))
      chosen.push_back(sample);
  }
  return chosen;
}

std::set<std::string> LocalFleet::host_ids() const {
  std::set<std::string> ids = state_->unreached;
  for (const auto& [id, entry] : state_->entries) ids.insert(entry.record.host_id);
  return ids;
}

io::Async<void> LocalFleet::close() {
  const auto state = state_;
  co_await state->pool.close(kRemovalTime);
  co_await state->write_noted();
}

io::Async<Result<std::vector<Event>>> LocalFleet::events(std::string team, std::string id,
                                                         EventQuery query) {
  const auto state = state_;
  co_await state->write_noted();
  co_return co_await state->records->events(std::move(team), std::move(id), std::move(query));
}

void LocalFleet::start_pool() {
  state_->pool.start();
}

Counts LocalFleet::counts() const {
  const Pool::Counts pool = state_->pool.counts();
  return {.running = state_->count(fleet::State::kRunning),
          .paused = state_->count(fleet::State::kPaused),
          .refused_by_quota = state_->refused_by_quota,
          .refused_full = state_->refused_full,
          .pool_ready = pool.ready,
          .pool_wanted = pool.wanted,
          .pool_taken = pool.taken_total,
          .pool_missed = pool.missed_total,
          .events_lost = state_->events_lost};
}

Pool::Counts LocalFleet::pool_counts() const {
  return state_->pool.counts();
}
std::size_t LocalFleet::size() const {
  return state_->entries.size();
}

}  // namespace caisson::fleet
