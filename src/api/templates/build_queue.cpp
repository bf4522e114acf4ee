#include "api/templates/build_queue.h"

#include <algorithm>
#include <deque>
#include <tuple>
#include <utility>

#include "api/templates/build_process.h"
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
      : loop(owner), host(maker), options(std::move(chosen)), book(to), changed(owner) {}

  struct Entry {
    Entry(io::Loop& on, BuildTask what) : task(std::move(what)), stop(on) {}
    BuildTask task;
    io::Latch stop;
    std::string stop_reason;
    BuildProcess* process = nullptr;  // while it runs
  };
  using Held = std::shared_ptr<Entry>;

  io::Loop& loop;
  maker::Host& host;
  const Options options;
  BuildBook& book;
  std::deque<Held> waiting;
  std::vector<Held> running;
  bool closed = false;
  io::Event changed;

  void begin_next();
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

void BuildQueue::State::begin_next() {
  while (running.size() < options.at_once && !waiting.empty()) {
    running.push_back(std::move(waiting.front()));
    waiting.pop_front();
    loop.spawn(run(shared_from_this(), running.back()));
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

bool BuildQueue::full() const {
  return state_->closed || state_->waiting.size() + state_->running.size() >= state_->options.most;
}

bool BuildQueue::add(BuildTask task) {
  if (full()) return false;
  state_->waiting.push_back(std::make_shared<State::Entry>(state_->loop, std::move(task)));
  state_->begin_next();
  return true;
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
  std::erase_if(state_->waiting, is_meant);
  for (const State::Held& entry : state_->running)
    if (is_meant(entry)) State::stop(*entry, reason);
}

io::Async<void> BuildQueue::close(std::string reason) {
  const auto state = state_;
  state->closed = true;
  const auto waiting = std::exchange(state->waiting, {});
  for (const State::Held& entry : waiting) co_await state->book.failed(entry->task, "base", reason);
  for (const State::Held& entry : state->running) State::stop(*entry, reason);
  while (!state->running.empty()) co_await state->changed.wait();
}

}  // namespace caisson::api
