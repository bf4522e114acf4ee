// What the filters cost: `ninja seccomp_bench && build/…/seccomp_bench`. Prints medians of the time
// of one call without and with each table, of one reported call with a listener that answers, and
// of installing a table.
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <thread>
#include <vector>

#include "guest/seccomp/filters.h"

namespace caisson::guest::seccomp {
namespace {

double now_ns() {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e9 + static_cast<double>(time.tv_nsec);
}

template <typename Call>
double median_ns(int rounds, int calls, Call call) {
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const double start = now_ns();
    for (int i = 0; i < calls; ++i) call();
    times.push_back((now_ns() - start) / calls);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void print_calls(const char* name) {
  const double getppid_ns = median_ns(31, 20'000, [] { syscall(SYS_getppid); });
  const double fcntl_ns = median_ns(31, 20'000, [] { syscall(SYS_fcntl, 0, F_GETFD); });
  const double ioctl_ns = median_ns(31, 20'000, [] { syscall(SYS_ioctl, -1, 0x5401, 0); });
  const double mmap_ns = median_ns(31, 5'000, [] {
    void* page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page, 4096);
  });
  const double unknown_ns = median_ns(31, 20'000, [] { syscall(9999); });
  std::printf(
      "%-18s getppid %5.0f  fcntl %5.0f  ioctl %5.0f  mmap+munmap %5.0f  unknown %5.0f ns\n", name,
      getppid_ns, fcntl_ns, ioctl_ns, mmap_ns, unknown_ns);
}

// In a child of its own, since a filter stays.
template <typename Body>
void in_child(Body body) {
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    body();
    std::fflush(stdout);
    _exit(0);
  }
  waitpid(child, nullptr, 0);
}

void print_installs(const char* name, std::span<const sock_filter> program) {
  std::vector<double> times;
  for (int round = 0; round < 101; ++round) {
    int ends[2];
    if (pipe(ends) != 0) return;
    const pid_t child = fork();
    if (child == 0) {
      prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
      const double start = now_ns();
      const bool done = install(program).has_value();
      const double taken = done ? now_ns() - start : -1;
      _exit(write(ends[1], &taken, sizeof taken) == sizeof taken ? 0 : 1);
    }
    double taken = 0;
    if (read(ends[0], &taken, sizeof taken) == sizeof taken) times.push_back(taken);
    waitpid(child, nullptr, 0);
    close(ends[0]);
    close(ends[1]);
  }
  std::sort(times.begin(), times.end());
  std::printf("%-18s install %6.1f us, %zu instructions, %zu bytes\n", name,
              times[times.size() / 2] / 1e3, program.size(), program.size_bytes());
}

void print_reported() {
  Result<Fd> listener = install_with_listener(table(Profile::kDefault, Reporting::kListener));
  if (!listener.has_value()) return;
  // The thread was born under the same filter, which lets ioctl on the listener pass.
  std::thread answering([fd = listener->get()] {
    seccomp_notif request = {};
    while (ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &request) == 0) {
      seccomp_notif_resp response = {request.id, 0, -EPERM, 0};
      ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &response);
      request = {};
    }
  });
  answering.detach();
  const double reported = median_ns(15, 1'000, [] { syscall(SYS_mount, 0, 0, 0, 0, 0); });
  std::printf("%-18s reported mount %.1f us\n", "default+listener", reported / 1e3);
}

int run() {
  print_calls("no filter");
  const std::array<const char*, kProfileCount> names = {"default", "browser", "debug"};
  for (std::size_t i = 0; i < kProfileCount; ++i) {
    const auto program = table(static_cast<Profile>(i), Reporting::kNone);
    in_child([&] {
      if (install(program).has_value()) print_calls(names[i]);
    });
  }
  in_child([&] {
    if (!install(no_setid_table()).has_value()) return;
    if (install(table(Profile::kDefault, Reporting::kNone)).has_value()) {
      print_calls("default+no_setid");
    }
  });
  for (std::size_t i = 0; i < kProfileCount; ++i) {
    print_installs(names[i], table(static_cast<Profile>(i), Reporting::kNone));
  }
  print_installs("no_setid", no_setid_table());
  in_child([] { print_reported(); });
  return 0;
}

}  // namespace
}  // namespace caisson::guest::seccomp

int main() {
  return caisson::guest::seccomp::run();
}
