// RUN/sandboxes/ID: the directory by which a living sandbox is found, and by which a dead one is
// swept.
//
// In it are `info` (box/result_json.h), `socket`, `journal` (the wall's), and `state` once the
// deadline was moved or the sandbox paused. The supervisor, which learns of that, has no rights to
// write there: the launcher does it for it.
//
// Whoever owns a sandbox holds an exclusive flock(2) on its `lock` file; the launcher takes it and
// the supervisor inherits it, so that it is free exactly when both are dead. RUN/sweep is held
// shared while a directory is made and exclusive while dead ones are removed, so that a sweep never
// sees half a registration.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"
#include "launcher/supervisor.h"
#include "wall/wall.h"

namespace caisson::launcher {

class Registration {
 public:
  // Makes the directory and takes the lock.
  static Result<Registration> create(int run_directory_fd, const std::string& id);
  // Stores `info` and binds the socket: from here on the sandbox can be found.
  Status publish(std::string_view info);
  // What has changed of it since, as `state` (read_state()): replaced as a whole.
  Status store_state(const SandboxState& state);

  int directory_fd() const { return directory_.get(); }
  Fd take_listener() { return std::move(listener_); }
  // Keeps the lock alone: for the supervisor, which is to have nothing else of it.
  void keep_lock() {
    sandboxes_.reset();
    directory_.reset();
  }
  // Removes the directory and everything in it.
  Status remove();

 private:
  std::string id_;
  Fd sandboxes_, directory_, lock_, listener_;
};

// The stored state of a sandbox; nullopt where nothing has changed yet. Error: data_loss, and those
// of reading it.
Result<std::optional<SandboxState>> read_state(int directory_fd);

// How many directories a sweep looks into: all, or of many only some, others each time.
enum class Looks : bool { kSome, kAll };

// Removes the sandboxes whose owners are dead: what their journals name, then their directories.
// Returns how many. Another sweep at the same time does the work instead.
Result<int> sweep(int run_directory_fd, wall::Wall& wall, Looks looks);

// Removes one sandbox whose launcher was killed, once its supervisor is dead too (the kernel kills
// it with its launcher). Error: what stays, or that somebody of it still lives after `patience_ms`.
Status sweep_one(int run_directory_fd, const std::string& id, wall::Wall& wall, int patience_ms);

}  // namespace caisson::launcher
