#include "fleet/local_fleet.h"

#include <unistd.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "fleet/page_token.h"

namespace caisson::fleet {

using std::chrono::seconds;

namespace {

constexpr auto kTick = std::chrono::milliseconds(250);
constexpr auto kSampleEvery = seconds(5);
constexpr auto kRemovalTime = seconds(10);

Error no_sandbox(std::string_view id) {
  return Error::not_found("sandbox \"" + std::string(id) + "\" was not found");
}

}  // namespace

struct LocalFleet::State : std::enable_shared_from_this<LocalFleet::State> {
  State(io::Loop& owner, FleetOptions chosen, std::unique_ptr<Records> kept)
      : loop(owner),
        options(std::move(chosen)),
        records(std::move(kept)),
        pool(owner, options.pool, options.make) {}

  io::Loop& loop;
  const FleetOptions options;
  const std::unique_ptr<Records> records;
  Pool pool;
  struct Entry {
    std::shared_ptr<LocalSandbox> sandbox;
    Record record;  // its view is the sandbox's
  };
  std::map<std::string, Entry, std::less<>> entries;
  std::map<std::string, std::size_t, std::less<>> creating;  // by team
  bool closed = false;

  Entry* find(std::string_view team, std::string_view id) {
    const auto found = entries.find(id);
    const bool there = found != entries.end() && found->second.record.team == team &&
                       !found->second.sandbox->ended();
    return there ? &found->second : nullptr;
  }
  std::size_t running(std::string_view team) const {
    const auto under_way = creating.find(team);
    return (under_way == creating.end() ? 0 : under_way->second) +
           static_cast<std::size_t>(std::ranges::count_if(entries, [&](const auto& entry) {
             return entry.second.record.team == team && !entry.second.sandbox->ended() &&
                    entry.second.sandbox->view().state == fleet::State::kRunning;
           }));
  }
  std::size_t paused(std::string_view team) const {
    return static_cast<std::size_t>(std::ranges::count_if(entries, [&](const auto& entry) {
      return entry.second.record.team == team && !entry.second.sandbox->ended() &&
             entry.second.sandbox->view().state == fleet::State::kPaused;
    }));
  }
  Status check(std::string_view team, seconds timeout) const;
  // Connects to a sandbox of an earlier server; tries again where it is there and does not answer.
  io::Async<Result<std::unique_ptr<BoxClient>>> reach(std::string host_id);
  // The state that its supervisor tells.
  static void believe(std::string_view usage, SandboxView& view);
  void add(std::shared_ptr<LocalSandbox> sandbox, Record record);
  // Writes what has changed.
  io::Async<Status> save(std::string id);
  void forget(const LocalSandbox& ended);
  void fill_tokens(Record& record) const;

  io::Async<Result<std::shared_ptr<LocalSandbox>>> make(std::string team, NewSandbox wanted);
  io::Async<Status> pause(std::shared_ptr<LocalSandbox> sandbox);
  io::Async<Status> resume(std::shared_ptr<LocalSandbox> sandbox, seconds timeout);
  void look_at_deadlines();
  static io::Async<void> clock(std::shared_ptr<State> self);
  static io::Async<void> timed_out(std::shared_ptr<State> self,
                                   std::shared_ptr<LocalSandbox> sandbox);
};

Status LocalFleet::State::check(std::string_view team, seconds timeout) const {
  const Quota quota = options.quota(team);
  if (timeout > quota.longest)
    return fail(Error::invalid("timeout: found " + std::to_string(timeout.count()) +
                               " seconds, allowed are at most " +
                               std::to_string(quota.longest.count())));
  if (running(team) >= quota.sandboxes)
    return fail(Error::exhausted("you have " + std::to_string(quota.sandboxes) +
                                 " running sandboxes, which is as many as your team may have"));
  if (paused(team) > quota.paused)
    return fail(Error::exhausted("you have more than " + std::to_string(quota.paused) +
                                 " paused sandboxes, which is as many as your team may have"));
  return {};
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
  const std::string id = record.view.id;
  entries.insert_or_assign(id, Entry{std::move(sandbox), std::move(record)});
}

void LocalFleet::State::forget(const LocalSandbox& ended) {
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
    if (!host_id.empty()) {
      auto end = [host_id] {
        end_sandbox(host_id);
        return true;
      };
      co_await self->loop.in_pool(std::move(end));
    }
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
    auto client = co_await BoxClient::connect(loop, socket_of(host_id));
    const bool there = ::access(socket_of(host_id).c_str(), F_OK) == 0;
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

io::Async<Result<std::shared_ptr<LocalSandbox>>> LocalFleet::State::make(std::string team,
                                                                         NewSandbox wanted) {
  CO_TRY_ASSIGN(Template from, co_await options.find_template(team, wanted.template_name));
  CO_TRY_ASSIGN(Ready ready, co_await pool.take(from.recipe));
  Record record{.team = team,
                .image = from.recipe.image,
                .host_id = ready.made.id,
                .user = ready.made.user,
                .workdir = ready.made.workdir,
                .secure = wanted.secure,
                .timeout = wanted.timeout,
                .env = std::move(from.env)};
  for (auto& [name, value] : wanted.env) record.env[name] = std::move(value);
  record.cpu_milli = from.recipe.cpu_milli.value_or(0);
  SandboxView& view = record.view;
  view.id = ready.made.id;
  view.template_id = std::move(from.id);
  view.alias = std::move(from.alias);
  view.started = WallClock::now();
  view.end = view.started + wanted.timeout;
  view.cpus = static_cast<std::uint32_t>((record.cpu_milli + 999) / 1000);
  view.memory_mib = from.recipe.memory_bytes.value_or(0) >> 20;
  view.disk_mib = from.recipe.disk_bytes.value_or(0) >> 20;
  view.metadata = std::move(wanted.metadata);
  view.on_timeout = wanted.on_timeout;
  view.on_timeout_keeps = wanted.on_timeout_keeps;
  view.auto_resume = wanted.auto_resume;
  view.public_traffic = wanted.public_traffic;
  view.mask_request_host = std::move(wanted.mask_request_host);
  fill_tokens(record);
  auto sandbox = std::make_shared<LocalSandbox>(loop, team, view, std::move(ready.made),
                                                std::move(ready.client));
  // The record first: a sandbox that nobody knows of would be ended as nobody's.
  auto put = co_await records->put(record);
  if (put.has_value()) put = co_await sandbox->set_end(view.end);
  if (!put.has_value()) {
    sandbox->kill();
    const Status ignored = co_await records->remove(record.view.id);
    co_return fail(std::move(put).error());
  }
  add(sandbox, std::move(record));
  if (sandbox->ended()) {
    forget(*sandbox);
    co_return fail(Error::unavailable("the sandbox ended before it was used"));
  }
  co_return sandbox;
}

io::Async<Status> LocalFleet::State::pause(std::shared_ptr<LocalSandbox> sandbox) {
  CO_TRY(co_await sandbox->freeze());
  co_return co_await save(sandbox->view().id);
}

io::Async<Status> LocalFleet::State::resume(std::shared_ptr<LocalSandbox> sandbox,
                                            seconds timeout) {
  // Counted as running while it becomes so.
  const std::string team = sandbox->team();
  ++creating[team];
  const auto thawed = co_await sandbox->thaw(WallClock::now() + timeout);
  if (--creating[team] == 0) creating.erase(team);
  CO_TRY(thawed);
  co_return co_await save(sandbox->view().id);
}

io::Async<void> LocalFleet::State::timed_out(std::shared_ptr<State> self,
                                             std::shared_ptr<LocalSandbox> sandbox) {
  const auto paused = co_await self->pause(sandbox);
  // What cannot be paused does not outlive its time.
  if (!paused.has_value() && sandbox->due(WallClock::now())) sandbox->kill();
}

void LocalFleet::State::look_at_deadlines() {
  const auto now = WallClock::now();
  for (auto& [id, entry] : entries) {
    if (!entry.sandbox->due(now) || entry.sandbox->busy()) continue;
    if (entry.sandbox->view().on_timeout == NewSandbox::OnTimeout::kKill) {
      entry.sandbox->kill();
    } else {
      loop.spawn(timed_out(shared_from_this(), entry.sandbox));
    }
  }
}

io::Async<void> LocalFleet::State::clock(std::shared_ptr<State> self) {
  auto next_sample = io::Clock::now() + kSampleEvery;
  while (!self->closed) {
    co_await io::Loop::sleep(kTick);
    self->look_at_deadlines();
    if (io::Clock::now() < next_sample) continue;
    next_sample = io::Clock::now() + kSampleEvery;
    std::vector<std::shared_ptr<LocalSandbox>> all;
    for (const auto& [id, entry] : self->entries) all.push_back(entry.sandbox);
    for (const auto& sandbox : all) self->loop.spawn(sandbox->sample());
  }
}

LocalFleet::LocalFleet(io::Loop& loop, FleetOptions options, std::unique_ptr<Records> records)
    : state_(std::make_shared<State>(loop, std::move(options), std::move(records))) {
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
    if (!client.has_value()) {
      ++adopted.lost;
      std::ignore = co_await state->records->remove(id);
      continue;
    }
    state->fill_tokens(record);
    // What it is now it knows better than what was written about it.
    const auto usage = co_await (*client)->request(proto::ControlOperation::kUsage, {});
    if (usage.has_value()) State::believe(usage->back(), record.view);
    const bool paused = record.view.state == fleet::State::kPaused;
    ++(paused ? adopted.paused : adopted.running);
    auto sandbox = std::make_shared<LocalSandbox>(state->loop, record.team, record.view,
                                                  Made{.id = record.host_id,
                                                       .socket = socket_of(record.host_id),
                                                       .user = record.user,
                                                       .workdir = record.workdir},
                                                  std::move(*client));
    state->add(sandbox, std::move(record));
    if (sandbox->ended()) state->forget(*sandbox);
  }
  co_return adopted;
}

io::Async<Result<std::shared_ptr<Served>>> LocalFleet::create(std::string team, NewSandbox wanted) {
  const auto state = state_;
  // Rather than made and then paused in another way than was asked for.
  if (wanted.on_timeout == NewSandbox::OnTimeout::kPause && wanted.on_timeout_keeps == Keep::kFiles)
    co_return fail(
        Error(Code::kUnimplemented, "a pause that keeps the files alone is not there yet"));
  if (auto allowed = state->check(team, wanted.timeout); !allowed.has_value())
    co_return fail(std::move(allowed).error());
  ++state->creating[team];
  auto made = co_await state->make(team, std::move(wanted));
  if (--state->creating[team] == 0) state->creating.erase(team);
  if (!made.has_value()) co_return fail(std::move(made).error());
  co_return std::shared_ptr<Served>(std::move(*made));
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
  if (!sandbox->kill()) co_return fail(no_sandbox(id));
  // It is gone for clients; removing takes its time beside them, and is awaited so that who kills
  // many does not outrun the host.
  co_await sandbox->wait_removed(kRemovalTime);
  co_return Status{};
}

io::Async<Status> LocalFleet::set_timeout(std::string team, std::string id, seconds from_now,
                                          Timeout how) {
  const auto state = state_;
  auto* entry = state->find(team, id);
  if (entry == nullptr) co_return fail(no_sandbox(id));
  const auto sandbox = entry->sandbox;
  if (from_now > state->options.quota(team).longest)
    co_return fail(state->check(team, from_now).error());
  if (sandbox->view().state == fleet::State::kPaused)
    co_return fail(Error::precondition("sandbox \"" + id + "\" is paused"));
  const auto end = WallClock::now() + from_now;
  if (from_now.count() <= 0) {
    entry->record.timeout = seconds(0);
    if (sandbox->view().on_timeout == NewSandbox::OnTimeout::kPause)
      co_return co_await state->pause(sandbox);
    sandbox->kill();
    co_return Status{};
  }
  entry->record.timeout = from_now;
  CO_TRY(co_await sandbox->set_end(end, how));
  co_return co_await state->save(id);
}

io::Async<Status> LocalFleet::pause(std::string team, std::string id, Keep keep) {
  const auto state = state_;
  auto* entry = state->find(team, id);
  if (entry == nullptr) co_return fail(no_sandbox(id));
  if (entry->sandbox->view().state == fleet::State::kPaused)
    co_return fail(Error::precondition("sandbox \"" + id + "\" is paused already"));
  if (keep == Keep::kFiles)
    co_return fail(
        Error(Code::kUnimplemented, "a pause that keeps the files alone is not there yet"));
  const auto sandbox = entry->sandbox;
  co_return co_await state->pause(sandbox);
}

io::Async<Result<bool>> LocalFleet::connect(std::string team, std::string id, seconds timeout,
                                            Resume how) {
  const auto state = state_;
  auto* entry = state->find(team, id);
  if (entry == nullptr) co_return fail(no_sandbox(id));
  const auto sandbox = entry->sandbox;
  if (sandbox->view().state == fleet::State::kRunning) {
    CO_TRY(co_await set_timeout(team, id, timeout, Timeout::kExtendOnly));
    co_return false;
  }
  if (how == Resume::kReboot)
    co_return fail(Error(Code::kUnimplemented, "a resume that boots anew is not there yet"));
  if (auto allowed = state->check(team, timeout); !allowed.has_value())
    co_return fail(std::move(allowed).error());
  entry->record.timeout = timeout;
  CO_TRY(co_await state->resume(sandbox, timeout));
  co_return true;
}

io::Async<bool> LocalFleet::resume_for_traffic(std::shared_ptr<Served> sandbox) {
  const auto state = state_;
  const std::string id = sandbox->view().id, team = sandbox->team();
  auto* entry = state->find(team, id);
  if (entry == nullptr || !entry->sandbox->view().auto_resume) co_return false;
  const auto own = entry->sandbox;
  const seconds timeout = std::max(entry->record.timeout, seconds(1));
  if (!state->check(team, timeout).has_value()) co_return false;
  const auto resumed = co_await state->resume(own, timeout);
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
  std::set<std::string> ids;
  for (const auto& [id, entry] : state_->entries) ids.insert(entry.record.host_id);
  return ids;
}

io::Async<void> LocalFleet::close_pool() {
  const auto state = state_;
  co_await state->pool.close(kRemovalTime);
}

void LocalFleet::start_pool() {
  state_->pool.start();
}

Pool::Counts LocalFleet::pool_counts() const {
  return state_->pool.counts();
}
std::size_t LocalFleet::size() const {
  return state_->entries.size();
}

}  // namespace caisson::fleet
