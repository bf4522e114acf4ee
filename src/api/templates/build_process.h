// One caisson-template-builder as the server sees it: started, given its job, listened to, ended.
//
// Its lines are read as they come and as fast as they are taken: who does not take them holds it
// back. It is caisson-maker's child and not ours: what we have is its socket, and the descriptor
// whose end it takes as an order to end. Belongs to the loop.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "build/template_job.h"
#include "io/loop.h"
#include "io/stream.h"
#include "maker/host.h"

namespace caisson::api {

class BuildProcess {
 public:
  // Starts it and hands the files of the job over, in the order in which the job names them.
  static io::Async<Result<std::unique_ptr<BuildProcess>>> start(
      io::Loop& loop, maker::Host& host, std::vector<std::string> archive_paths);

  io::Async<Status> send(build::TemplateJob job);
  // What has come, at least one line; none: it has said its last word. Errors: deadline_exceeded,
  // data_loss (what it says is none of its words).
  io::Async<Result<std::vector<build::JobLine>>> next(io::Clock::time_point until);
  // Tells it to end, leaving nothing behind; it does so in some seconds.
  void terminate() { life_.reset(); }
  // Waits until it has ended.
  io::Async<void> end();

 private:
  BuildProcess(Fd life, std::unique_ptr<io::Stream> stream)
      : life_(std::move(life)), stream_(std::move(stream)) {}

  Fd life_;
  std::unique_ptr<io::Stream> stream_;
  std::string partial_;
};

}  // namespace caisson::api
