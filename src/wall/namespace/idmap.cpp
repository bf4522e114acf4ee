#include "wall/namespace/idmap.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "base/kernel_abi.h"
#include "base/sys.h"

namespace caisson::wall {

namespace {

// Its whole life. In the caller's memory, so that nothing is copied for it: it may touch nothing
// but its own stack, and neither of these calls fails for another reason than that we are gone.
int wait_in_namespace(void* maker) {
  // It holds every descriptor of ours, the sandbox's lock among them: it must not outlive us.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != *static_cast<pid_t*>(maker))
    ::_exit(1);
  for (;;) ::pause();
}

}  // namespace

Result<Fd> make_mapping(const IdMap& uids, const IdMap& gids) {
  // A child whose only work is to be in the namespace until we have a descriptor of it. A fork
  // would copy the page tables for that, and copy them down again.
  alignas(16) std::array<char, 16 * 1024> stack;
  pid_t maker = ::getpid();
  const pid_t pid = ::clone(wait_in_namespace, stack.data() + stack.size(),
                            CLONE_NEWUSER | CLONE_VM | SIGCHLD, &maker);
  if (pid < 0) return fail_errno("clone for an id mapping");
  const auto finish = [&](auto result) {
    ::kill(pid, SIGKILL);
    // The stack is its own until then.
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
    return result;
  };
  const Fd proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!proc.valid()) return finish(Result<Fd>(fail_errno("open /proc")));
  if (auto written = write_maps(proc.get(), pid, uids, gids, false); !written)
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
