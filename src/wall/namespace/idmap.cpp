#include "wall/namespace/idmap.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/kernel_abi.h"
#include "base/sys.h"

namespace caisson::wall {

Result<Fd> make_mapping(const IdMap& uids, const IdMap& gids) {
  // A child whose only work is to be in the namespace until we have a descriptor of it.
  clone_args arguments{};
  arguments.flags = CLONE_NEWUSER;
  arguments.exit_signal = SIGCHLD;
  const pid_t maker = ::getpid();
  const long pid = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid < 0) return fail_errno("clone3 for an id mapping");
  if (pid == 0) {
    // It holds every descriptor of ours, the sandbox's lock among them: it must not outlive us.
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != maker) ::_exit(1);
    for (;;) ::pause();
  }
  const auto finish = [&](auto result) {
    // Nobody waits for it here: it is reaped with everything else that the launcher inherits.
    ::kill(static_cast<pid_t>(pid), SIGKILL);
    return result;
  };
  const Fd proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!proc.valid()) return finish(Result<Fd>(fail_errno("open /proc")));
  if (auto written = write_maps(proc.get(), static_cast<pid_t>(pid), uids, gids, false); !written)
    return finish(Result<Fd>(fail(std::move(written).error())));
  const std::string path = std::to_string(pid) + "/ns/user";
  Fd handle(::openat(proc.get(), path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!handle.valid()) return finish(Result<Fd>(fail_errno("open " + path)));
  return finish(Result<Fd>(std::move(handle)));
}

IdMap image_mapping(const IdMap& outer, const IdMap& inner, std::uint32_t disk_base) {
  IdMap map;
  for (const IdExtent& extent : inner) {
    if (const auto host = mapped(outer, extent.outside))
      map.push_back({disk_base + extent.inside, *host, extent.count});
  }
  return map;
}

}  // namespace caisson::wall
