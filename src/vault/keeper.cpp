#include "vault/keeper.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>
#include <tuple>
#include <utility>

#include "base/kernel_abi.h"
#include "base/paths.h"
#include "base/sys.h"
#include "egress/confine.h"
#include "vault/engine.h"
#include "vault/key_file.h"
#include "vault/lock_memory.h"
#include "vault/protocol.h"
#include "vault/worker.h"

namespace caisson::vault {
namespace {

constexpr int kStatusOfOurError = 125;
// From a worker's start to the next one's, at least.
constexpr std::uint64_t kPauseUs = 1'000'000;
// So many workers in a row that cannot start, and the keeper ends, and with it the server, which
// says why: its key has gone, or its rights.
constexpr int kMostFailed = 5;

// What starts a worker as somebody else with locked memory, and nothing more.
Status drop_rights() {
  if (::geteuid() != 0) return {};
  const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
  // Without the right to raise it the worker says what is missing.
  std::ignore = ::setrlimit(RLIMIT_MEMLOCK, &all);
  constexpr std::uint32_t kKept = 1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_SETPCAP |
                                  1u << CAP_IPC_LOCK |
                                  // Or our death would tell the worker nothing.
                                  1u << CAP_KILL;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return fail_errno("capget");
  data[0].effective = data[0].permitted &= kKept;
  data[1].effective = data[1].permitted = 0;
  data[0].inheritable = data[1].inheritable = 0;
  if (::syscall(SYS_capset, &header, data) != 0) return fail_errno("capset");
  return {};
}

// OpenSSL reads files when it is first used, and what the C library allocates then it keeps.
Status warm_up(const Engine& engine) {
  TRY_ASSIGN(const NetworkKeys keys, engine.make_keys());
  policy::NetworkPolicy none;
  TRY(engine.seal(none, {}, ""));
  return {};
}

// In the fork: until the server has gone. `first`: says how it started.
int work(int control_fd, const Fd& folder, int keeper, bool first) {
  const auto say = [&](const Error& error) {
    std::fprintf(stderr, "caisson-vault: %s\n", error.message().c_str());
    if (first) std::ignore = sys::send_message(control_fd, encode_error(error), {});
    return kStatusOfOurError;
  };
  // Before there is anything that a dump could have.
  if (const Status forbidden = egress::forbid_dumps(); !forbidden.has_value())
    return say(forbidden.error());
  settle_heap();
  auto keys = read_keys(folder.get());
  if (!keys.has_value()) return say(keys.error());
  const Engine engine(std::move(*keys));
  if (const Status warm = warm_up(engine); !warm.has_value()) return say(warm.error());
  const auto not_locked = confine_worker(control_fd, keeper);
  if (!not_locked.has_value()) return say(not_locked.error());
  if (first) std::ignore = sys::send_message(control_fd, encode_done({*not_locked}), {});
  serve(control_fd, engine);
  return 0;
}

void pause_until(std::uint64_t until_us) {
  const std::uint64_t now = sys::monotonic_us();
  if (now >= until_us) return;
  const timespec pause{static_cast<time_t>((until_us - now) / 1'000'000),
                       static_cast<long>((until_us - now) % 1'000'000 * 1000)};
  ::nanosleep(&pause, nullptr);
}

// The status of a process that ended.
int wait_for(pid_t pid) {
  int status = -1;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

int run_keeper(int control_fd) {
  // What a terminal or a service manager tells is for the server, whose end is ours.
  for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGPIPE}) ::signal(signal, SIG_IGN);
  std::ignore = ::prctl(PR_SET_NAME, "vault-keeper");
  const auto refuse = [&](const Error& error) {
    std::ignore = sys::send_message(control_fd, encode_error(error), {});
    return kStatusOfOurError;
  };
  auto folder = prepare_keys(state_directory());
  if (!folder.has_value()) return refuse(folder.error());
  if (const Status dropped = drop_rights(); !dropped.has_value()) return refuse(dropped.error());
  const pid_t keeper = ::getpid();
  int failed = 0;
  for (bool first = true;; first = false) {
    const std::uint64_t started = sys::monotonic_us();
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(work(control_fd, *folder, keeper, first));
    if (pid < 0 && first) return refuse(Error::syscall("fork of caisson-vault", errno));
    const int status = pid < 0 ? -1 : wait_for(pid);
    // The server has gone, or was told why it cannot start.
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 0 || first)) return WEXITSTATUS(status);
    const bool cannot_start = pid < 0 || (WIFEXITED(status) && WEXITSTATUS(status) != 0);
    failed = cannot_start ? failed + 1 : 0;
    if (failed == kMostFailed) return kStatusOfOurError;
    pollfd server{control_fd, 0, 0};
    if (::poll(&server, 1, 0) > 0) return 0;  // it has gone
    std::fprintf(stderr, "caisson-vault has ended (status %d), and is started again\n", status);
    pause_until(started + kPauseUs);
  }
}

}  // namespace caisson::vault
