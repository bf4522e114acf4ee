// One caisson-template-builder as the server sees it: started, given its job, listened to, ended.
//
// Its lines are read as they come and as fast as they are taken: who does not take them holds it
// back. Dropped before end() it is killed at once. Belongs to the loop, on whose thread it must be
// started, since the process ends with the thread that started it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "build/template_job.h"
#include "io/loop.h"
#include "io/stream.h"

namespace caisson::api {

class BuildProcess {
 public:
  // `program`: the path of caisson-template-builder.
  static Result<std::unique_ptr<BuildProcess>> start(io::Loop& loop, const std::string& program);
  ~BuildProcess();
  BuildProcess(const BuildProcess&) = delete;
  BuildProcess& operator=(const BuildProcess&) = delete;

  io::Async<Status> send(build::TemplateJob job);
  // What has come, at least one line; none: it has said its last word. Errors: deadline_exceeded,
  // data_loss (what it says is none of its words).
  io::Async<Result<std::vector<build::JobLine>>> next(io::Clock::time_point until);
  // Asks it to end, leaving nothing behind.
  void terminate();
  // Waits until it has ended, and kills it where that takes more than a few seconds.
  io::Async<void> end();

 private:
  BuildProcess(pid_t pid, std::unique_ptr<io::Stream> stream)
      : pid_(pid), stream_(std::move(stream)) {}
  io::Async<bool> has_ended(std::chrono::milliseconds patience);

  pid_t pid_;
  std::unique_ptr<io::Stream> stream_;
  std::string partial_;
};

}  // namespace caisson::api
