// A program on the host that prints a secret's value: run as whoever makes the sandbox, without a
// shell, with a fixed few of its variables and nothing else of it, in a session of its own.
//
// Bounded: kCommandTime, after which it and what it started in its session's group are killed, and
// kMostOutput. One thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/secret.h"
#include "egress/minted.h"

namespace caisson::egress {

inline constexpr std::chrono::seconds kCommandTime{30};
inline constexpr std::size_t kMostOutput = 64 * 1024;

// Of this process: HOME, PATH and what else programs that hand out credentials find their own by
// ("NAME=VALUE"). No variable that is a secret by custom is among them.
std::vector<std::string> command_environment();

class SecretCommand {
 public:
  // Its output is read by take(); stderr goes to `error_fd`, or nowhere (-1). Error: not_found with
  // the program's name.
  static Result<SecretCommand> start(const std::vector<std::string>& command,
                                     const std::vector<std::string>& environment, int error_fd);
  SecretCommand(SecretCommand&& other) noexcept;
  SecretCommand& operator=(SecretCommand&&) = delete;
  ~SecretCommand();  // kills it

  // To be polled for POLLIN.
  int fd() const { return output_.get(); }
  // CLOCK_MONOTONIC, microseconds: when it is to be given up.
  std::uint64_t end_by_us() const { return end_by_us_; }
  // What has come. nullopt: it goes on. Else what it printed in all; error: it failed, was too long
  // about it, or printed too much. Called when fd() is readable, or the time is over.
  std::optional<Result<SecretBytes>> take();

 private:
  SecretCommand() = default;
  void kill();
  Result<SecretBytes> finish();

  pid_t pid_ = -1;
  Fd output_;
  SecretBytes bytes_;
  std::uint64_t end_by_us_ = 0;
};

// The whole of it, waiting for its end; what it says on stderr goes to ours.
Result<Minted> mint(const std::vector<std::string>& command, std::optional<std::uint64_t> ttl_ms);

}  // namespace caisson::egress
