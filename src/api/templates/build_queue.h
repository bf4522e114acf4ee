// The builds of templates that a server has under way: so many at a time, of them so many of one
// team, each in a process of its own and in a bounded time; the others wait.
//
// Teams take turns: next is who has the fewest that go on, then who had no turn for longest, where
// one that was away passes the last who had one and no other. So whoever has ordered a hundred
// builds lets another team's first one pass, and nobody is passed for ever; each team's own go in
// the order in which they came. One that goes on also counts as a sandbox of its team's
// (fleet/quota.h); where the team has as many as it may, its builds wait for one to end. One that
// has not begun so long after its order as a build may take, and waits for that, has failed.
//
// The store lets go of nothing while anybody builds. Where for long no moment was without a build,
// the next ones wait, within bounds, until those that go on have ended (store_moment.h): their
// builders sweep the store at their end, of which the last one's finds nobody at work.
//
// A build goes through the builder (build_process.h); then what the template starts is tried in a
// sandbox (fleet/trial.h). What it says and how it ends is told to a Book as it happens. Belongs to
// the loop.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "build/template_job.h"
#include "db/builds.h"
#include "fleet/host.h"
#include "fleet/start_command.h"
#include "io/loop.h"

namespace caisson::api {

struct BuildTask {
  std::string team, template_id, build_id;
  build::TemplateJob job;
  std::vector<std::string> archive_paths;  // of the job's archives, in their order
  // Of the sandbox that the start command is tried in; the image is the queue's to say.
  fleet::Recipe recipe;
  fleet::StartCommand start;
};

// Where builds are written down.
class BuildBook {
 public:
  virtual ~BuildBook() = default;
  virtual io::Async<void> log(std::string build_id, std::vector<db::LogEntry> entries) = 0;
  // `image`: as fleet::Recipe names it.
  virtual io::Async<void> finished(BuildTask task, std::string image) = 0;
  virtual io::Async<void> failed(BuildTask task, std::string step, std::string reason) = 0;
};

class BuildQueue {
 public:
  struct Options {
    std::size_t at_once = 4;
    std::size_t team_at_once = 3;
    std::size_t most = 200;      // with those that wait
    std::size_t team_most = 20;  // of one team, likewise
    std::optional<std::chrono::milliseconds> time;
    // resource_exhausted where the team may not have one more that goes on: it waits, and is asked
    // about again every `look_every`. True until the loop's next turn. Null: it always may.
    std::function<io::Async<Status>(std::string team)> room;
    std::chrono::milliseconds look_every = std::chrono::seconds(1);
    // So long builds may go on without a moment in which there is none.
    std::chrono::milliseconds busy_for = std::chrono::hours(1);
    // And so long the others wait then, the first time.
    std::chrono::milliseconds rest_for = std::chrono::minutes(10);
    // Of what a template starts, when it is tried.
    std::chrono::milliseconds ready_time = std::chrono::minutes(9);
    std::chrono::milliseconds watch_time = std::chrono::seconds(2);
  };
  // Host and book outlive it.
  BuildQueue(io::Loop& loop, maker::Host& host, Options options, BuildBook& book);
  ~BuildQueue();
  BuildQueue(const BuildQueue&) = delete;
  BuildQueue& operator=(const BuildQueue&) = delete;

  // Whether one more of the team's may be added. Error: resource_exhausted, which says what is
  // full.
  Status check(std::string_view team) const;
  // Errors: those of check().
  Status add(BuildTask task);
  // How many go on, of the team or (nullopt) of all.
  std::size_t running(std::optional<std::string_view> team) const;
  // What the images of those that go on will be called in the store, or are already.
  std::vector<std::string> names() const;
  // The ids of all that wait or go on, sorted.
  std::vector<std::string> builds() const;
  // Ends the builds of a template.
  void cancel(const std::string& template_id, const std::string& reason);
  // Ends all, and waits until nothing of them runs.
  io::Async<void> close(std::string reason);

  struct State;  // for build_queue.cpp alone

 private:
  std::shared_ptr<State> state_;
};

}  // namespace caisson::api
