#include <algorithm>
#include <tuple>
#include <utility>

#include "fleet/local_fleet_state.h"

namespace caisson::fleet {

namespace {

constexpr auto kTryAgain = std::chrono::milliseconds(250);
constexpr std::chrono::milliseconds kLongestRetry = std::chrono::minutes(1);
constexpr std::uint32_t kMostRestored = 1000;  // entries of a log that is gone on with

}  // namespace

io::Async<Result<std::unique_ptr<BoxClient>>> LocalFleet::State::reach(std::string host_id) {
  constexpr int kTries = 5;
  for (int left = kTries;; --left) {
    auto client = co_await fleet::reach(loop, host, host_id);
    const bool there = client.has_value() || client.error().code() != Code::kNotFound;
    if (client.has_value() || !there || left == 1) co_return client;
    co_await io::Loop::sleep(kTryAgain);
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

void LocalFleet::State::note_left(const std::string& team, const std::string& id,
                                  std::string message, const Error& why) {
  note(team, id,
       {.time = WallClock::now(),
        .level = Event::Level::kWarn,
        .message = std::move(message),
        .fields = {{"error", why.message()}}});
}

io::Async<LocalFleet::State::Found> LocalFleet::State::adopt(Record record) {
  const std::string id = record.view.id;
  auto client = co_await reach(record.host_id);
  if (!client.has_value() && client.error().code() != Code::kNotFound) {
    left_alone.insert(record.host_id);
    note_left(record.team, id, "the sandbox could not be reached, and was left as it is",
              client.error());
    co_return Found::kUnreached;
  }
  if (!client.has_value()) {
    note(record.team, id,
         {.time = WallClock::now(),
          .level = Event::Level::kWarn,
          .message = "the sandbox ended while no server ran",
          .fields = {}});
    std::ignore = co_await records->remove(id);
    co_return Found::kLost;
  }
  fill_tokens(record);
  // Before any client can start something in it, which a log that is read later would not know.
  // Without its log it lives as well.
  const auto log = co_await records->events(
      record.team, id,
      {.text = "a process", .order = EventQuery::Order::kNewestFirst, .limit = kMostRestored});
  // What it is now it knows better than what was written about it.
  const auto usage = co_await (*client)->request(proto::ControlOperation::kUsage, {});
  if (usage.has_value()) believe(usage->back(), record.view);
  const bool paused = record.view.state == fleet::State::kPaused;
  auto sandbox = std::make_shared<LocalSandbox>(
      loop, record.team, record.view,
      Made{.id = record.host_id, .user = record.user, .workdir = record.workdir},
      std::move(*client));
  if (log.has_value()) sandbox->restore_log({log->rbegin(), log->rend()});
  const bool keyed = !record.secrets.empty();
  add(sandbox, std::move(record));
  if (sandbox->ended()) forget(*sandbox);
  // What its team keeps may have changed while nobody could tell it.
  else if (keyed)
    loop.spawn(catch_up_later(shared_from_this(), sandbox));
  co_return paused ? Found::kPaused : Found::kRunning;
}

io::Async<bool> LocalFleet::State::forget_if_gone(Damaged one) {
  const auto client = co_await fleet::reach(loop, host, one.host_id);
  if (client.has_value() || client.error().code() != Code::kNotFound) co_return false;
  note(one.team, one.id,
       {.time = WallClock::now(),
        .level = Event::Level::kWarn,
        .message = "the sandbox ended, whose record could not be read",
        .fields = {}});
  left_alone.erase(one.host_id);
  std::ignore = co_await records->remove(one.id);
  co_return true;
}

io::Async<void> LocalFleet::State::retry_damaged(std::shared_ptr<State> self,
                                                 std::vector<Damaged> damaged) {
  auto pause = self->options.first_retry;
  while (!damaged.empty()) {
    co_await io::Loop::sleep(pause);
    pause = std::min(2 * pause, kLongestRetry);
    if (self->closed) co_return;
    auto stored = co_await self->records->all();
    if (!stored.has_value()) continue;
    std::vector<Damaged> still;
    for (const Damaged& one : damaged) {
      const auto readable = std::ranges::find_if(
          stored->records, [&](const Record& record) { return record.view.id == one.id; });
      if (readable != stored->records.end()) {
        self->left_alone.erase(one.host_id);
        std::ignore = co_await self->adopt(std::move(*readable));
        continue;
      }
      const bool there = std::ranges::any_of(
          stored->damaged, [&](const Damaged& other) { return other.id == one.id; });
      if (!there) continue;  // somebody has removed it
      const bool gone = co_await self->forget_if_gone(one);
      if (!gone) still.push_back(one);
    }
    damaged = std::move(still);
  }
}

io::Async<Result<LocalFleet::Adopted>> LocalFleet::adopt() {
  const auto state = state_;
  Adopted adopted;
  CO_TRY_ASSIGN(AllRecords stored, co_await state->records->all());
  for (const Damaged& one : stored.damaged) {
    ++adopted.damaged;
    state->left_alone.insert(one.host_id);
    state->note_left(one.team, one.id,
                     "the sandbox's record cannot be read, and it was left as it is",
                     Error::invalid(one.why));
  }
  for (Record& record : stored.records) {
    const auto found = co_await state->adopt(std::move(record));
    ++(found == State::Found::kRunning  ? adopted.running
       : found == State::Found::kPaused ? adopted.paused
       : found == State::Found::kLost   ? adopted.lost
                                        : adopted.unreached);
  }
  if (!stored.damaged.empty())
    state->loop.spawn(State::retry_damaged(state, std::move(stored.damaged)));
  co_return adopted;
}

}  // namespace caisson::fleet
