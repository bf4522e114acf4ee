#include <algorithm>
#include <tuple>
#include <utility>

#include "base/time_text.h"
#include "fleet/local_fleet_state.h"
#include "fleet/page_token.h"

namespace caisson::fleet {

namespace {

constexpr auto kTick = std::chrono::milliseconds(250);
constexpr auto kSampleEvery = seconds(5);
constexpr std::size_t kMostNoted = 4096;
// Who did something to a sandbox, as its log says it.
constexpr std::string_view kRequest = "request", kDeadline = "deadline", kTraffic = "traffic";

}  // namespace

std::map<std::string, std::string> LocalFleet::State::variables_of(const Record& record) {
  std::map<std::string, std::string> env = record.env;
  for (auto& [name, value] : own_variables(record.view.id)) env[name] = std::move(value);
  env["E2B_TEMPLATE_ID"] = record.view.template_id;
  return env;
}

void LocalFleet::State::add(std::shared_ptr<LocalSandbox> sandbox, Record record) {
  sandbox->set_env(variables_of(record));
  sandbox->set_start(record.start);
  const std::weak_ptr<State> weak = weak_from_this();
  sandbox->on_end([weak](LocalSandbox& ended) {
    if (const auto state = weak.lock(); state != nullptr) state->forget(ended);
  });
  sandbox->on_note([weak](const LocalSandbox& of, Event event) {
    if (const auto state = weak.lock(); state != nullptr)
      state->note(of.team(), of.view().id, std::move(event));
  });
  const std::string id = record.view.id;
  sandbox->on_files_alone([weak, id]() -> io::Async<void> {
    // What cannot be written down is paused all the same.
    if (const auto state = weak.lock(); state != nullptr) std::ignore = co_await state->save(id);
  });
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

io::Async<Status> LocalFleet::State::pause(std::shared_ptr<LocalSandbox> sandbox, Keep keep,
                                           When when, std::string_view why) {
  const std::string team = sandbox->team();
  if (keep == Keep::kMemory) {
    // A quota that cannot be read ends no sandbox: the server's limit holds still.
    const auto quota = co_await options.quota(team);
    CO_TRY(check_held(quota.has_value() ? *quota : Quota(), team));
    ++pausing[team];
  }
  const auto paused = co_await sandbox->freeze(keep, when, options.reboot_time);
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
  const auto thawed = co_await sandbox->thaw(timeout, how, options.reboot_time);
  count_out(creating, team);
  if (!thawed.has_value()) {
    // What its pause kept may be less now.
    std::ignore = co_await save(sandbox->view().id);
    co_return thawed;
  }
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
  std::set<std::string> ids = state_->left_alone;
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
