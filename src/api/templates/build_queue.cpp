#include "api/templates/build_queue.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "api/templates/build_process.h"
#include "api/templates/store_moment.h"
#include "fleet/trial.h"
#include "io/latch.h"
#include "io/race.h"

namespace caisson::api {

using build::JobDone;
using build::JobFailed;
using build::JobLine;
using build::JobLog;

namespace {

constexpr std::string_view kLastStep = "finalize";
constexpr std::chrono::milliseconds kWriteEvery{300};
constexpr std::size_t kMostLine = 4096;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string seconds_text(std::chrono::milliseconds time) {
  return std::to_string(time.count() / 1000) + " seconds";
}

// What a start command says, as entries of the log.
class Said {
 public:
  void take(std::string_view bytes) {
    for (const char c : bytes) {
      if (c == '\n' || partial_.size() >= kMostLine) add();
      if (c != '\n') partial_ += c;
    }
  }
  std::vector<db::LogEntry> entries() { return std::exchange(entries_, {}); }
  // No more comes: what is left is for who says so.
  void close() {
    closed_ = true;
    if (!partial_.empty()) add();
  }
  bool closed() const { return closed_; }

 private:
  void add() {
    std::string line = std::exchange(partial_, {});
    // Written a few times a second; who says more than that is not heard in full.
    constexpr std::size_t kMostHeld = 1000;
    if (entries_.size() < kMostHeld)
      entries_.push_back({.time_ms = now_ms(),
                          .level = db::LogLevel::kInfo,
                          .step = std::string(kLastStep),
                          .message = std::move(line)});
  }

  std::string partial_;
  std::vector<db::LogEntry> entries_;
  bool closed_ = false;
};

}  // namespace

struct BuildQueue::State : std::enable_shared_from_this<BuildQueue::State> {
  State(io::Loop& owner, maker::Host& maker, Options chosen, BuildBook& to)
      : loop(owner),
        host(maker),
        options(std::move(chosen)),
        book(to),
        changed(owner),
        moment(options.busy_for, options.rest_for) {}

  struct Entry {
    Entry(io::Loop& on, BuildTask what) : task(std::move(what)), stop(on) {}
    BuildTask task;
    const io::Clock::time_point added = io::Clock::now();
    std::string waits_for;  // as the log was told
    io::Latch stop;
    std::string stop_reason;
    BuildProcess* process = nullptr;  // while it runs
  };
  using Held = std::shared_ptr<Entry>;
  // Of one team; never empty.
  struct Row {
    std::string team;
    std::deque<Held> builds;
  };

  io::Loop& loop;
  maker::Host& host;
  const Options options;
  BuildBook& book;
  std::deque<Row> waiting;  // in the order in which the teams came
  std::vector<Held> running;
  // When teams that wait or run had their last turn, on a clock that every turn moves on by two.
  // Who has come since goes just before the one of that turn and after all others: were it before
  // them all, two that come again and again would keep a third from ever having its turn.
  std::map<std::string, std::uint64_t, std::less<>> turns;
  std::uint64_t turns_total = 0;
  bool closed = false;
  io::Event changed;
  bool begins = false, begins_again = false;
  bool looks_again = false;
  StoreMoment moment;

  bool must_rest() { return !running.empty() && moment.is_due(io::Clock::now()); }
  std::size_t count_waiting() const;
  std::size_t count_running(std::optional<std::string_view> team) const;
  std::deque<Row>::iterator row_of(std::string_view team);
  // Whose turn it is: of those that may begin one, who has the fewest that go on, then who had no
  // turn for longest.
  std::deque<Row>::iterator next_row(const std::set<std::string>& must_wait);
  void forget_turns(const std::string& team);
  // Begins what may begin, in turns.
  void begin_next();
  static io::Async<void> begin_in_turn(std::shared_ptr<State> self);
  // The teams that must wait for room.
  io::Async<std::set<std::string>> begin_what_may();
  // What is next of each team waits for the store's moment.
  io::Async<void> say_rest();
  // Tells the team's next one what it waits for.
  io::Async<void> make_wait(std::string team, Error reason);
  // After a while, for those that must wait.
  static io::Async<void> look_again(std::shared_ptr<State> self, std::set<std::string> teams);
  io::Async<void> give_up_late(std::string team);
  static void stop(Entry& entry, const std::string& reason);
  static io::Async<void> run(std::shared_ptr<State> self, Held entry);
  // nullopt: it is done.
  io::Async<std::optional<JobFailed>> build(Entry& entry);
  io::Async<std::optional<JobFailed>> listen(Entry& entry, BuildProcess& process);
  io::Async<std::optional<JobFailed>> take(Entry& entry, std::vector<JobLine> lines, bool& over);
  io::Async<std::optional<JobFailed>> try_start(Entry& entry);
  io::Async<void> write_down(Entry& entry, Said& said);
  io::Async<void> say(Entry& entry, db::LogLevel level, std::string step, std::string text);
};

io::Async<void> BuildQueue::State::say(Entry& entry, db::LogLevel level, std::string step,
                                       std::string text) {
  std::vector<db::LogEntry> entries = {
      {.time_ms = now_ms(), .level = level, .step = std::move(step), .message = std::move(text)}};
  co_await book.log(entry.task.build_id, std::move(entries));
}

std::size_t BuildQueue::State::count_waiting() const {
  std::size_t count = 0;
  for (const Row& row : waiting) count += row.builds.size();
  return count;
}

std::size_t BuildQueue::State::count_running(std::optional<std::string_view> team) const {
  if (!team.has_value()) return running.size();
  return static_cast<std::size_t>(
      std::ranges::count_if(running, [&](const Held& entry) { return entry->task.team == *team; }));
}

std::deque<BuildQueue::State::Row>::iterator BuildQueue::State::row_of(std::string_view team) {
  return std::ranges::find(waiting, team, &Row::team);
}

std::deque<BuildQueue::State::Row>::iterator BuildQueue::State::next_row(
    const std::set<std::string>& must_wait) {
  auto next = waiting.end();
  std::pair<std::size_t, std::uint64_t> least;
  for (auto row = waiting.begin(); row != waiting.end(); ++row) {
    const std::size_t going_on = count_running(row->team);
    if (must_wait.contains(row->team) || going_on >= options.team_at_once) continue;
    const std::pair rank(going_on, turns.at(row->team));
    if (next != waiting.end() && rank >= least) continue;
    next = row;
    least = rank;
  }
  return next;
}

void BuildQueue::State::forget_turns(const std::string& team) {
  if (count_running(team) == 0 && row_of(team) == waiting.end()) turns.erase(team);
}

void BuildQueue::State::begin_next() {
  begins_again = true;
  if (begins) return;
  begins = true;
  loop.spawn(begin_in_turn(shared_from_this()));
}

io::Async<void> BuildQueue::State::begin_in_turn(std::shared_ptr<State> self) {
  std::set<std::string> must_wait;
  while (std::exchange(self->begins_again, false)) must_wait = co_await self->begin_what_may();
  self->begins = false;
  const bool waits = !must_wait.empty() || (self->must_rest() && !self->waiting.empty());
  if (!waits || self->looks_again || self->closed) co_return;
  self->looks_again = true;
  self->loop.spawn(look_again(self, std::move(must_wait)));
}

io::Async<std::set<std::string>> BuildQueue::State::begin_what_may() {
  std::set<std::string> must_wait;
  // Whoever ends asks again.
  while (!closed && running.size() < options.at_once && !must_rest()) {
    const auto next = next_row(must_wait);
    if (next == waiting.end()) break;
    const std::string team = next->team;
    Status room;
    if (options.room) room = co_await options.room(team);
    if (!room.has_value()) {
      must_wait.insert(team);
      co_await make_wait(team, std::move(room).error());
      continue;
    }
    // It may have been cancelled meanwhile.
    const auto row = row_of(team);
    if (closed || row == waiting.end()) continue;
    if (running.empty()) moment.had(io::Clock::now());
    running.push_back(std::move(row->builds.front()));
    row->builds.pop_front();
    if (row->builds.empty()) waiting.erase(row);
    turns[team] = 2 * ++turns_total + 1;
    loop.spawn(run(shared_from_this(), running.back()));
  }
  if (must_rest()) co_await say_rest();
  co_return must_wait;
}

io::Async<void> BuildQueue::State::say_rest() {
  std::vector<std::string> teams;
  for (const Row& row : waiting) teams.push_back(row.team);
  const auto most = std::chrono::duration_cast<std::chrono::milliseconds>(moment.patience());
  for (const std::string& team : teams)
    co_await make_wait(team, Error::exhausted("the builds that go on end first, so that the store "
                                              "can be tidied; " +
                                              seconds_text(most) + " at most"));
}

io::Async<void> BuildQueue::State::make_wait(std::string team, Error reason) {
  const auto row = row_of(team);
  if (row == waiting.end()) co_return;
  const Held entry = row->builds.front();
  if (entry->waits_for == reason.message()) co_return;
  entry->waits_for = reason.message();
  co_await say(*entry, db::LogLevel::kInfo, "base", "waiting: " + reason.message());
}

io::Async<void> BuildQueue::State::look_again(std::shared_ptr<State> self,
                                              std::set<std::string> teams) {
  co_await io::Loop::sleep(self->options.look_every);
  self->looks_again = false;
  for (const std::string& team : teams) co_await self->give_up_late(team);
  if (!self->closed) self->begin_next();
}

io::Async<void> BuildQueue::State::give_up_late(std::string team) {
  for (;;) {
    const auto row = row_of(team);
    if (closed || !options.time.has_value() || row == waiting.end()) co_return;
    const Held entry = row->builds.front();
    if (io::Clock::now() - entry->added < *options.time) co_return;
    row->builds.pop_front();
    if (row->builds.empty()) waiting.erase(row);
    forget_turns(team);
    const std::string reason =
        "it could not begin in " + seconds_text(*options.time) + ": " + entry->waits_for;
    co_await say(*entry, db::LogLevel::kError, "base", reason);
    co_await book.failed(entry->task, "base", reason);
  }
}

void BuildQueue::State::stop(Entry& entry, const std::string& reason) {
  if (entry.stop.is_set()) return;
  entry.stop_reason = reason;
  entry.stop.set();
  if (entry.process != nullptr) entry.process->terminate();
}

io::Async<void> BuildQueue::State::run(std::shared_ptr<State> self, Held entry) {
  std::optional<JobFailed> failure = co_await self->build(*entry);
  if (!failure.has_value() && !entry->stop.is_set() && !entry->task.start.command.empty())
    failure = co_await self->try_start(*entry);
  if (entry->stop.is_set())
    failure = JobFailed{.step = failure.has_value() ? failure->step : std::string(kLastStep),
                        .text = entry->stop_reason};
  if (failure.has_value()) {
    co_await self->say(*entry, db::LogLevel::kError, failure->step, failure->text);
    co_await self->book.failed(entry->task, failure->step, failure->text);
  } else {
    co_await self->book.finished(entry->task, entry->task.recipe.image);
  }
  std::erase(self->running, entry);
  self->forget_turns(entry->task.team);
  self->changed.notify();
  self->begin_next();
}

io::Async<std::optional<JobFailed>> BuildQueue::State::build(Entry& entry) {
  auto process = co_await BuildProcess::start(loop, host, entry.task.archive_paths);
  if (!process.has_value())
    co_return JobFailed{.step = "base",
                        .text = "the build cannot be started: " + process.error().message()};
  entry.process = process->get();
  std::optional<JobFailed> failure =
      JobFailed{.step = std::string(kLastStep), .text = "the build was told to end"};
  auto talk = [](State& self, Entry& of, BuildProcess& with,
                 std::optional<JobFailed>& into) -> io::Async<void> {
    // Where it does not take its job it has ended, which listening finds out.
    std::ignore = co_await with.send(of.task.job);
    into = co_await self.listen(of, with);
  };
  co_await io::race(talk(*this, entry, **process, failure), entry.stop.wait());
  if (failure.has_value()) (*process)->terminate();
  co_await (*process)->end();
  entry.process = nullptr;
  co_return failure;
}

io::Async<std::optional<JobFailed>> BuildQueue::State::listen(Entry& entry, BuildProcess& process) {
  const auto until =
      options.time.has_value() ? io::Clock::now() + *options.time : io::Clock::time_point::max();
  for (;;) {
    auto lines = co_await process.next(until);
    if (!lines.has_value()) {
      const bool late = lines.error().code() == Code::kDeadlineExceeded;
      co_return JobFailed{.step = std::string(kLastStep),
                          .text = late ? "the build took longer than " + seconds_text(*options.time)
                                       : "the build failed: " + lines.error().message()};
    }
    if (lines->empty())
      co_return JobFailed{.step = std::string(kLastStep), .text = "the build ended unexpectedly"};
    bool over = false;
    auto failure = co_await take(entry, std::move(*lines), over);
    if (over) co_return failure;
  }
}

io::Async<std::optional<JobFailed>> BuildQueue::State::take(Entry& entry,
                                                            std::vector<JobLine> lines,
                                                            bool& over) {
  std::vector<db::LogEntry> entries;
  std::optional<JobFailed> failure;
  for (JobLine& line : lines) {
    if (auto* log = std::get_if<JobLog>(&line)) {
      entries.push_back({.time_ms = now_ms(),
                         .level = static_cast<db::LogLevel>(log->level),
                         .step = std::move(log->step),
                         .message = std::move(log->text)});
    } else {
      over = true;
      if (auto* failed = std::get_if<JobFailed>(&line)) failure = std::move(*failed);
      if (const auto* done = std::get_if<JobDone>(&line))
        entry.task.recipe.image = "sha256:" + done->image;
    }
  }
  if (!entries.empty()) co_await book.log(entry.task.build_id, std::move(entries));
  co_return failure;
}

io::Async<void> BuildQueue::State::write_down(Entry& entry, Said& said) {
  for (;;) {
    co_await io::Loop::sleep(kWriteEvery);
    // Resumed by the other side's end, it would take what it cannot write any more.
    if (said.closed()) co_return;
    std::vector<db::LogEntry> entries = said.entries();
    if (!entries.empty()) co_await book.log(entry.task.build_id, std::move(entries));
  }
}

io::Async<std::optional<JobFailed>> BuildQueue::State::try_start(Entry& entry) {
  co_await say(entry, db::LogLevel::kInfo, std::string(kLastStep),
               "starting: " + entry.task.start.command.substr(0, kMostLine));
  Said said;
  fleet::StartOptions how{.ready_time = options.ready_time, .watch_time = options.watch_time};
  how.output = [&said](std::string_view bytes) { said.take(bytes); };
  Status done;
  auto attempt = [](State& self, Entry& of, fleet::StartOptions with, Said& words,
                    Status& into) -> io::Async<void> {
    into = co_await fleet::try_start(self.loop, self.host, of.task.recipe, of.task.start,
                                     std::move(with), of.stop);
    words.close();
  };
  co_await io::race(attempt(*this, entry, std::move(how), said, done), write_down(entry, said));
  std::vector<db::LogEntry> entries = said.entries();
  if (!entries.empty()) co_await book.log(entry.task.build_id, std::move(entries));
  if (done.has_value()) co_return std::nullopt;
  co_return JobFailed{.step = std::string(kLastStep), .text = done.error().message()};
}

BuildQueue::BuildQueue(io::Loop& loop, maker::Host& host, Options options, BuildBook& book)
    : state_(std::make_shared<State>(loop, host, std::move(options), book)) {}
BuildQueue::~BuildQueue() = default;

Status BuildQueue::check(std::string_view team) const {
  State& state = *state_;
  if (state.closed) return fail(Error::unavailable("the server ends"));
  const auto row = state.row_of(team);
  const std::size_t theirs =
      state.count_running(team) + (row == state.waiting.end() ? 0 : row->builds.size());
  if (theirs >= state.options.team_most)
    return fail(Error::exhausted("you have " + std::to_string(theirs) +
                                 " builds that wait or go on, which is as many as a team may have; "
                                 "try again later"));
  if (state.count_waiting() + state.running.size() >= state.options.most)
    return fail(Error::exhausted("as many builds wait as this server takes; try again later"));
  return {};
}

Status BuildQueue::add(BuildTask task) {
  TRY(check(task.team));
  auto row = state_->row_of(task.team);
  if (row == state_->waiting.end())
    row = state_->waiting.insert(row, State::Row{.team = task.team, .builds = {}});
  state_->turns.try_emplace(task.team, 2 * state_->turns_total);
  row->builds.push_back(std::make_shared<State::Entry>(state_->loop, std::move(task)));
  state_->begin_next();
  return {};
}

std::size_t BuildQueue::running(std::optional<std::string_view> team) const {
  return state_->count_running(team);
}

std::vector<std::string> BuildQueue::builds() const {
  std::vector<std::string> ids;
  for (const State::Held& entry : state_->running) ids.push_back(entry->task.build_id);
  for (const State::Row& row : state_->waiting)
    for (const State::Held& entry : row.builds) ids.push_back(entry->task.build_id);
  std::ranges::sort(ids);
  return ids;
}

std::vector<std::string> BuildQueue::names() const {
  std::vector<std::string> names;
  for (const State::Held& entry : state_->running) names.push_back(entry->task.job.name);
  return names;
}

void BuildQueue::cancel(const std::string& template_id, const std::string& reason) {
  const auto is_meant = [&](const State::Held& entry) {
    return entry->task.template_id == template_id;
  };
  for (State::Row& row : state_->waiting) std::erase_if(row.builds, is_meant);
  std::erase_if(state_->waiting, [](const State::Row& row) { return row.builds.empty(); });
  std::erase_if(state_->turns, [&](const auto& turn) {
    return state_->count_running(turn.first) == 0 &&
           state_->row_of(turn.first) == state_->waiting.end();
  });
  for (const State::Held& entry : state_->running)
    if (is_meant(entry)) State::stop(*entry, reason);
}

io::Async<void> BuildQueue::close(std::string reason) {
  const auto state = state_;
  state->closed = true;
  const auto waiting = std::exchange(state->waiting, {});
  for (const State::Row& row : waiting)
    for (const State::Held& entry : row.builds)
      co_await state->book.failed(entry->task, "base", reason);
  for (const State::Held& entry : state->running) State::stop(*entry, reason);
  while (!state->running.empty()) co_await state->changed.wait();
}

}  // namespace caisson::api
