// Starting caisson-launcher and talking to it: an id and a plan down, one answer up, one word at
// the end.
//
// The launcher runs in a session of its own, so that a terminal's Ctrl-C reaches this program
// alone, with an empty environment and no descriptor but its end of a socket pair (3) and stderr. A
// Launch owns that socket and the child; dropping it without wait_end() closes the socket, which
// ends a sandbox that is not detached. One thread.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "wall/handouts.h"
#include "wall/plan.h"

namespace caisson::box {

class Launch {
 public:
  // Starts the launcher before the plan is ready, so that the two overlap: by a fork of this
  // process where it is small and has one thread, else as the program caisson-launcher. It claims
  // what every sandbox needs and waits for the plan; dropped before, it leaves nothing.
  static Result<Launch> start();
  Launch(Launch&& other) noexcept;
  Launch& operator=(Launch&& other) noexcept;
  ~Launch();

  // The id that the sandbox will have.
  const std::string& id() const { return id_; }
  // Sends the plan, whose descriptor indices count `descriptors`. The first client's connection,
  // on which requests may be sent that wait until the sandbox is up.
  Result<Fd> send(const wall::Plan& plan, std::span<const int> descriptors);
  // Waits for the answer: what the plan asked to have handed out. On an error nothing is left of
  // the sandbox once this object is gone.
  Result<wall::Handouts> await_up();
  // Waits until everything is removed; of a launcher that was killed, what it left is removed here.
  // Error: internal, with what could not be removed.
  Status wait_end();
  // Leaves a detached sandbox's launcher to itself.
  void leave();

 private:
  Launch(Fd socket, pid_t pid) : socket_(std::move(socket)), pid_(pid) {}
  // Waits for the launcher's end and does its work where it was killed. Error: what stays.
  Status reap();

  Fd socket_;
  pid_t pid_ = -1;
  // Of the sandbox that was asked for.
  std::string id_;
  Fd run_directory_;
};

// A new sandbox id: 16 characters of [a-z0-9], from the kernel's random numbers.
Result<std::string> new_sandbox_id();

// run_directory(), made (0700) where it is missing. Error: permission_denied where it is somebody
// else's or open to others.
Result<Fd> open_run_directory();

}  // namespace caisson::box
