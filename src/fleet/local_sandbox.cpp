#include "fleet/local_sandbox.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/proto.h"
#include "base/verdict.h"
#include "fleet/network.h"

namespace caisson::fleet {

using proto::ControlOperation;
using proto::Tag;

namespace {

// A sandbox that is to be paused at its time, by us, is ended by its supervisor only when nobody
// has done so for so long; a paused one waits without an end.
constexpr std::chrono::minutes kPauseGrace{5};
// As long as a snapshot may take, during which nobody pauses it.
constexpr std::chrono::minutes kLongestSnapshot{45};
// Of a start command and the wait until it is ready (StartOptions::ready_time), and of what is said
// about it.
constexpr std::chrono::seconds kLongestStart{120};
constexpr std::uint64_t kLongestPause = 30ull * 24 * 3600 * 1000;
constexpr std::chrono::seconds kRemovalTime{60};
constexpr std::size_t kMostSamples = 120;  // ten minutes of one each five seconds

proto::Fields deadline(std::uint64_t ms) {
  proto::Fields fields;
  fields.put_u64(Tag::kTimeLimitMs, ms);
  return fields;
}

std::uint64_t ms_from_now(WallClock::time_point end) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(end - WallClock::now()).count();
  return left > 0 ? static_cast<std::uint64_t>(left) : 0;
}

}  // namespace

// Who changes a sandbox's state does so alone.
class LocalSandbox::Turn {
 public:
  explicit Turn(std::shared_ptr<LocalSandbox> owner) : owner_(std::move(owner)) {}
  ~Turn() {
    owner_->busy_ = false;
    owner_->turn_event_.notify();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  std::shared_ptr<LocalSandbox> owner_;
};

LocalSandbox::LocalSandbox(io::Loop& loop, std::string team, SandboxView view, Made made,
                           std::shared_ptr<BoxClient> client)
    : loop_(loop),
      team_(std::move(team)),
      view_(std::move(view)),
      made_(std::move(made)),
      client_(std::move(client)),
      last_sample_(io::Clock::now()),
      end_event_(loop),
      turn_event_(loop) {
  // The connection is ours and calls nobody when it is dropped with us.
  client_->on_gone([this] { end(); });
}

LocalSandbox::~LocalSandbox() {
  client_->on_gone(nullptr);
}

Result<BoxClient*> LocalSandbox::client() {
  if (ended_) return fail(Error::unavailable("sandbox " + view_.id + " has ended"));
  if (view_.state == State::kPaused)
    return fail(Error::unavailable("sandbox " + view_.id + " is paused"));
  return client_.get();
}

io::Async<void> LocalSandbox::wait_ended() {
  const auto self = shared_from_this();
  while (!ended_) co_await end_event_.wait();
}

void LocalSandbox::note(Event::Level level, std::string message,
                        std::map<std::string, std::string> fields) {
  put_into_log(Event{.time = WallClock::now(),
                     .level = level,
                     .message = std::move(message),
                     .fields = std::move(fields)});
}

void LocalSandbox::put_into_log(std::optional<Event> event) {
  if (event.has_value() && on_note_ != nullptr) on_note_(*this, std::move(*event));
}

void LocalSandbox::note_start(std::uint32_t command, std::map<std::string, std::string> fields) {
  look_again_ = true;
  put_into_log(processes_.started(command, std::move(fields)));
}

void LocalSandbox::note_end(std::uint32_t command, const Outcome& outcome) {
  put_into_log(processes_.ended(command, WallClock::now(), outcome));
}

void LocalSandbox::restore_log(const std::vector<Event>& log) {
  look_again_ = true;
  processes_.restore(log);
}

io::Async<void> LocalSandbox::look_for_ends(std::optional<std::uint64_t> ended) {
  if (processes_.open().empty()) co_return;
  if (!look_again_ && ended.has_value() && ended == ended_seen_) co_return;
  if (!client().has_value()) co_return;
  look_again_ = false;
  // Those that the supervisor knows when it is asked.
  std::set<std::uint32_t> missing = processes_.open();
  // Those that run first: what ends in between is among the verdicts then, rather than in neither.
  const auto commands = co_await client_->request(ControlOperation::kListCommands, {});
  const auto verdicts = co_await client_->request(ControlOperation::kListVerdicts, {});
  if (!verdicts.has_value() || !commands.has_value() || ended_) {
    look_again_ = true;
    co_return;
  }
  ended_seen_ = ended;
  const auto take = [&](const std::string& answer) {
    const auto fields = proto::FieldReader::parse(answer);
    if (!fields.has_value() || !fields->has(Tag::kCommand)) return;
    const auto number =
        static_cast<std::uint32_t>(fields->number_or_none(Tag::kCommand).value_or(0));
    if (number == 0 || missing.erase(number) == 0 || !fields->has(Tag::kVerdict)) return;
    const auto outcome = decode_outcome(answer);
    if (!outcome.has_value()) return;
    const auto at = fields->number_or_none(Tag::kEndedMs);
    const auto when = at.has_value() ? WallClock::time_point(milliseconds(*at)) : WallClock::now();
    put_into_log(processes_.ended(number, when, *outcome));
  };
  for (const std::string& answer : *verdicts) take(answer);
  for (const std::string& answer : *commands) take(answer);
  // So many have ended since that the ends of these are told no more.
  for (const std::uint32_t number : missing) put_into_log(processes_.lost(number));
}

io::Async<void> LocalSandbox::take_turn() {
  while (busy_) co_await turn_event_.wait();
  busy_ = true;
}

io::Async<void> LocalSandbox::wait_settled() {
  const auto self = shared_from_this();
  while (busy_) co_await turn_event_.wait();
}

io::Async<Status> LocalSandbox::set_end(WallClock::time_point end, Fleet::Timeout how) {
  const auto self = shared_from_this();
  co_await take_turn();
  const Turn turn(self);
  CO_TRY_ASSIGN(BoxClient * client, this->client());
  // Asked here, where nobody else moves it: of two that extend the longer one counts.
  if (how == Fleet::Timeout::kExtendOnly && end <= view_.end) co_return Status{};
  const auto grace =
      view_.on_timeout == NewSandbox::OnTimeout::kPause ? kPauseGrace : std::chrono::minutes(0);
  CO_TRY(
      co_await client->request(ControlOperation::kSetDeadline, deadline(ms_from_now(end + grace))));
  view_.end = end;
  co_return Status{};
}

io::Async<std::shared_ptr<void>> LocalSandbox::hold() {
  const auto self = shared_from_this();
  co_await take_turn();
  co_return std::make_shared<Turn>(self);
}

io::Async<Status> LocalSandbox::set_network(std::string network, std::string fields) {
  const auto self = shared_from_this();
  if (ended_) co_return fail(Error::unavailable("sandbox " + view_.id + " has ended"));
  const auto client = client_;
  CO_TRY(co_await apply_network(*client, std::move(network)));
  view_.network = std::move(fields);
  co_return Status{};
}

io::Async<Result<bool>> LocalSandbox::freeze(Keep keep, Pause when, milliseconds reboot_time) {
  const auto self = shared_from_this();
  co_await take_turn();
  const Turn turn(self);
  if (when == Pause::kIfDue && !due(WallClock::now())) co_return false;
  CO_TRY_ASSIGN(BoxClient * client, this->client());
  if (keep == Keep::kFiles) {
    CO_TRY(co_await keep_files_alone(reboot_time));
  } else {
    CO_TRY(co_await client->request(ControlOperation::kFreeze, {}));
  }
  // Only now: a sandbox that could not be frozen keeps its time.
  CO_TRY(co_await client->request(ControlOperation::kSetDeadline, deadline(kLongestPause)));
  view_.state = State::kPaused;
  view_.paused_keeps = keep;
  view_.end = WallClock::now();
  co_return true;
}

io::Async<Status> LocalSandbox::boot_anew(State then, milliseconds time) {
  proto::Fields frozen;
  if (then == State::kPaused) frozen.put_u8(Tag::kFrozen, 1);
  const auto done = co_await client_->request(ControlOperation::kReboot, std::move(frozen), time);
  if (done.has_value()) co_return Status{};
  // Half of it may have ended, and whatever is asked of it would wait for the rest. Its supervisor
  // ends it by itself then, or is what does not answer.
  if (done.error().code() == Code::kDeadlineExceeded && !ended_) {
    note(Event::Level::kError, "the sandbox did not boot anew in time, and was ended",
         {{"error", done.error().message()}});
    kill();
  }
  co_return fail(done.error());
}

io::Async<Status> LocalSandbox::keep_files_alone(milliseconds time) {
  view_.paused_keeps = Keep::kFiles;
  if (on_files_alone_) co_await on_files_alone_();
  co_return co_await boot_anew(State::kPaused, time);
}

io::Async<Result<std::string>> LocalSandbox::with_state_kept(
    std::function<Result<std::string>()> work) {
  const auto self = shared_from_this();
  co_await take_turn();
  const Turn turn(self);
  if (ended_) co_return fail(Error::unavailable("sandbox " + view_.id + " has ended"));
  if (view_.state == State::kPaused)
    co_return fail(Error::precondition("sandbox \"" + view_.id + "\" is paused"));
  if (view_.on_timeout == NewSandbox::OnTimeout::kKill)
    co_return co_await loop_.in_pool(std::move(work));
  // One that is to be paused at its time is not to be ended instead, for having to wait for us.
  const auto from_then = [this](std::chrono::minutes more) {
    return deadline(ms_from_now(std::max(view_.end, WallClock::now()) + more));
  };
  CO_TRY(co_await client_->request(ControlOperation::kSetDeadline, from_then(kLongestSnapshot)));
  auto done = co_await loop_.in_pool(std::move(work));
  // Where this fails its connection is gone, and it ends.
  std::ignore = co_await client_->request(ControlOperation::kSetDeadline, from_then(kPauseGrace));
  co_return done;
}

io::Async<Status> LocalSandbox::set_deadline(WallClock::time_point end) {
  const auto set =
      co_await client_->request(ControlOperation::kSetDeadline, deadline(ms_from_now(end)));
  if (!set.has_value()) co_return fail(set.error());
  co_return Status{};
}

io::Async<Status> LocalSandbox::start_again(milliseconds reboot_time) {
  const auto client = client_;
  StartOptions how{.user = made_.user, .env = own_variables(view_.id)};
  const Status started = co_await start_and_wait(loop_, *client, start_, std::move(how));
  if (started.has_value() || ended_) co_return started;
  note(Event::Level::kWarn, "the start command failed after a boot",
       {{"error", started.error().message()}});
  // As it was, with what is left of it: its files. Whoever resumes it again tries again.
  const Status stopped = co_await keep_files_alone(reboot_time);
  if (!stopped.has_value() && !ended_) {
    // It would go on, half started, while everybody takes it for paused.
    note(Event::Level::kError,
         "the sandbox did not boot anew after its start command failed, and was ended",
         {{"error", stopped.error().message()}});
    kill();
  }
  co_return started;
}

io::Async<Status> LocalSandbox::thaw(std::chrono::seconds time, Resume how,
                                     milliseconds reboot_time) {
  const auto self = shared_from_this();
  co_await take_turn();
  const Turn turn(self);
  if (ended_) co_return fail(Error::unavailable("sandbox " + view_.id + " has ended"));
  if (view_.state == State::kRunning) co_return Status{};
  const auto grace =
      view_.on_timeout == NewSandbox::OnTimeout::kPause ? kPauseGrace : std::chrono::minutes(0);
  // Of one whose pause kept the files alone nothing runs that could be ended.
  const bool reboots = how == Resume::kReboot && view_.paused_keeps == Keep::kMemory;
  const bool starts = (reboots || view_.paused_keeps == Keep::kFiles) && !start_.command.empty();
  // Its time begins when it is ready.
  auto end = WallClock::now() + time;
  CO_TRY(co_await set_deadline(end + grace + (starts ? kLongestStart : std::chrono::seconds(0))));
  Status thawed;
  if (reboots) {
    thawed = co_await boot_anew(State::kRunning, reboot_time);
  } else {
    const auto answer = co_await client_->request(ControlOperation::kThaw, {});
    if (!answer.has_value()) thawed = fail(answer.error());
  }
  if (thawed.has_value() && starts) {
    thawed = co_await start_again(reboot_time);
    end = WallClock::now() + time;
    if (thawed.has_value()) thawed = co_await set_deadline(end + grace);
  }
  if (!thawed.has_value()) {
    // It stays paused, and does not end for having been asked to go on.
    if (!ended_)
      std::ignore =
          co_await client_->request(ControlOperation::kSetDeadline, deadline(kLongestPause));
    co_return fail(std::move(thawed).error());
  }
  view_.state = State::kRunning;
  view_.end = end;
  // What it used while it was paused is nothing.
  last_cpu_micros_.reset();
  co_return Status{};
}

void LocalSandbox::end() {
  if (std::exchange(ended_, true)) return;
  end_event_.notify();
  // The handler may drop the fleet's reference to us.
  const auto self = weak_from_this().lock();
  if (const auto handler = std::exchange(on_end_, nullptr); handler != nullptr) handler(*this);
}

bool LocalSandbox::kill() {
  if (ended_) return false;
  killed_ = true;
  end();
  // Those who were woken run before this does, and cut their streams. It holds the connection until
  // the supervisor has heard of it.
  auto shut_down = [](std::shared_ptr<LocalSandbox> self) -> io::Async<void> {
    co_await io::Loop::sleep({});
    self->client_->shutdown();
    co_await self->wait_removed(kRemovalTime);
  };
  loop_.spawn(shut_down(shared_from_this()));
  return true;
}

io::Async<bool> LocalSandbox::wait_removed(io::Clock::duration time) {
  const auto self = shared_from_this();
  const auto until = io::Clock::now() + time;
  while (!client_->gone()) {
    if (io::Clock::now() >= until) co_return false;
    co_await client_->wait_gone_until(until);
  }
  co_return true;
}

io::Async<void> LocalSandbox::sample() {
  const auto self = shared_from_this();
  const auto client = this->client();
  if (!client.has_value() || busy_ || std::exchange(sampling_, true)) co_return;
  struct Done {
    bool& sampling;
    ~Done() { sampling = false; }
  } const done{sampling_};
  const auto answer = co_await (*client)->request(ControlOperation::kUsage, {});
  if (!answer.has_value() || ended_) co_return;
  const auto fields = proto::FieldReader::parse(answer->back());
  if (!fields.has_value()) co_return;
  const auto number = [&](Tag tag) { return fields->number_or_none(tag).value_or(0); };
  Sample sample{.time = WallClock::now(), .cpus = view_.cpus};
  sample.memory_used = number(Tag::kMemoryNow);
  sample.memory_total = view_.memory_mib << 20;
  sample.disk_used = number(Tag::kDiskBytes);
  sample.disk_total = view_.disk_mib << 20;
  const std::uint64_t micros = number(Tag::kUserMicros) + number(Tag::kSystemMicros);
  const auto now = io::Clock::now();
  const double elapsed = std::chrono::duration<double, std::micro>(now - last_sample_).count();
  if (last_cpu_micros_.has_value() && micros >= *last_cpu_micros_ && elapsed > 0)
    sample.cpu_used_percent = 100.0 * static_cast<double>(micros - *last_cpu_micros_) / elapsed;
  last_cpu_micros_ = micros;
  last_sample_ = now;
  samples_.push_back(sample);
  if (samples_.size() > kMostSamples) samples_.pop_front();
  co_await look_for_ends(fields->number_or_none(Tag::kCommandsEnded));
}

bool LocalSandbox::due(WallClock::time_point now) const {
  return !ended_ && view_.state == State::kRunning && now >= view_.end;
}

}  // namespace caisson::fleet
