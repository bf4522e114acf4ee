// The builds of templates that a server has under way: so many at a time, each in a process of its
// own and in a bounded time; the others wait in the order in which they came.
//
// A build goes through the builder (build_process.h); then what the template starts is tried in a
// sandbox (fleet/trial.h). What it says and how it ends is told to a Book as it happens. Belongs to
// the loop.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
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
  // Of the sandboxes that will be made of it.
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
    std::size_t most = 100;  // with those that wait
    std::optional<std::chrono::milliseconds> time;
    // Of what a template starts, when it is tried.
    std::chrono::milliseconds ready_time = std::chrono::minutes(9);
    std::chrono::milliseconds watch_time = std::chrono::seconds(2);
  };
  // Host and book outlive it.
  BuildQueue(io::Loop& loop, maker::Host& host, Options options, BuildBook& book);
  ~BuildQueue();
  BuildQueue(const BuildQueue&) = delete;
  BuildQueue& operator=(const BuildQueue&) = delete;

  bool full() const;
  // False: it is full, or closed.
  bool add(BuildTask task);
  // What the images of those that go on will be called in the store, or are already.
  std::vector<std::string> names() const;
  // Ends the builds of a template.
  void cancel(const std::string& template_id, const std::string& reason);
  // Ends all, and waits until nothing of them runs.
  io::Async<void> close(std::string reason);

  struct State;  // for build_queue.cpp alone

 private:
  std::shared_ptr<State> state_;
};

}  // namespace caisson::api
