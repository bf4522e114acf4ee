#include "base/companion.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <utility>

namespace caisson {

Status start_companion(const std::string& path, std::vector<std::string> arguments, Fd theirs) {
  // A socket that has the number already would keep its flag and be closed.
  if (theirs.get() == kCompanionFd) {
    theirs = Fd(::fcntl(theirs.get(), F_DUPFD_CLOEXEC, kCompanionFd + 1));
    if (!theirs.valid()) return fail_errno("fcntl F_DUPFD_CLOEXEC");
  }
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawnattr_init(&attributes);
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), kCompanionFd);
  ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, kCompanionFd + 1);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(
      &attributes,
      static_cast<short>(POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  pid_t pid = -1;
  const int failed =
      ::posix_spawn(&pid, path.c_str(), &actions, &attributes, pointers.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (failed != 0) return fail(Error::syscall("start " + path, failed));
  return {};
}

}  // namespace caisson
