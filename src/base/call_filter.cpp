#include "base/call_filter.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string>

namespace caisson {

CallFilter::CallFilter() {
  load(offsetof(seccomp_data, arch));
  skip_unless(AUDIT_ARCH_X86_64, 1, 0);
  answer(SECCOMP_RET_KILL_PROCESS);
  load(offsetof(seccomp_data, nr));
}

void CallFilter::allow(int number) {
  skip_unless(static_cast<std::uint32_t>(number), 0, 1);
  answer(SECCOMP_RET_ALLOW);
}

void CallFilter::refuse(int number, std::uint32_t error_number) {
  skip_unless(static_cast<std::uint32_t>(number), 0, 1);
  answer(SECCOMP_RET_ERRNO | error_number);
}

void CallFilter::allow_where(int number, unsigned argument, std::uint32_t bits,
                             std::initializer_list<std::uint32_t> values) {
  const auto steps = static_cast<std::uint8_t>(2 * values.size() + 3);
  skip_unless(static_cast<std::uint32_t>(number), 0, steps);
  load(static_cast<std::uint32_t>(offsetof(seccomp_data, args) + 8 * argument));
  add(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, bits));
  for (const std::uint32_t value : values) {
    skip_unless(value, 0, 1);
    answer(SECCOMP_RET_ALLOW);
  }
  answer(SECCOMP_RET_ERRNO | EPERM);
}

void CallFilter::allow_threads() {
  constexpr std::uint32_t kNewThread = CLONE_VM | CLONE_THREAD | CLONE_SIGHAND;
  allow_where(SYS_clone, 0, kNewThread, {kNewThread});
  refuse(SYS_clone3, ENOSYS);
}

void CallFilter::allow_own_signals() {
  allow_where(SYS_tgkill, 0, ~0u, {static_cast<std::uint32_t>(::getpid())});
}

Status CallFilter::install(const char* whose) {
  answer(SECCOMP_RET_ERRNO | EPERM);
  const sock_fprog filter{static_cast<unsigned short>(steps_.size()), steps_.data()};
  if (::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) != 0)
    return fail_errno(std::string("seccomp of ") + whose);
  return {};
}

void CallFilter::load(std::uint32_t at) {
  add(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at));
}

void CallFilter::skip_unless(std::uint32_t value, std::uint8_t equal, std::uint8_t other) {
  add(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, equal, other));
}

void CallFilter::answer(std::uint32_t what) {
  add(BPF_STMT(BPF_RET | BPF_K, what));
}

}  // namespace caisson
