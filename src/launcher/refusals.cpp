#include "launcher/refusals.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/kernel_abi.h"
#include "base/verdict.h"

namespace caisson::launcher {
namespace {

struct CallName {
  int number;
  const char* name;
};

// Newer than the C library's headers.
constexpr int kOpenTreeAttr = 467;

// Names of the reportable set for people; a number outside it is shown as such.
constexpr CallName kNames[] = {
    {SYS_mount, "mount"},
    {SYS_umount2, "umount2"},
    {SYS_pivot_root, "pivot_root"},
    {SYS_chroot, "chroot"},
    {SYS_unshare, "unshare"},
    {SYS_setns, "setns"},
    {SYS_clone, "clone with namespaces"},
    {SYS_bpf, "bpf"},
    {SYS_ptrace, "ptrace"},
    {SYS_process_vm_readv, "process_vm_readv"},
    {SYS_process_vm_writev, "process_vm_writev"},
    {SYS_open_tree, "open_tree"},
    {SYS_move_mount, "move_mount"},
    {SYS_fsopen, "fsopen"},
    {SYS_fsconfig, "fsconfig"},
    {SYS_fsmount, "fsmount"},
    {SYS_fspick, "fspick"},
    {SYS_mount_setattr, "mount_setattr"},
    {SYS_io_uring_setup, "io_uring_setup"},
    {SYS_userfaultfd, "userfaultfd"},
    {SYS_perf_event_open, "perf_event_open"},
    {SYS_keyctl, "keyctl"},
    {SYS_add_key, "add_key"},
    {SYS_request_key, "request_key"},
    {SYS_kexec_load, "kexec_load"},
    {SYS_kexec_file_load, "kexec_file_load"},
    {SYS_init_module, "init_module"},
    {SYS_finit_module, "finit_module"},
    {SYS_delete_module, "delete_module"},
    {SYS_reboot, "reboot"},
    {SYS_open_by_handle_at, "open_by_handle_at"},
    {SYS_name_to_handle_at, "name_to_handle_at"},
    {kOpenTreeAttr, "open_tree_attr"},
    {SYS_pidfd_getfd, "pidfd_getfd"},
    {SYS_kcmp, "kcmp"},
    {SYS_fanotify_init, "fanotify_init"},
    {SYS_fanotify_mark, "fanotify_mark"},
    {SYS_memfd_secret, "memfd_secret"},
    // Of its operations those alone that type into a terminal or change it are reported.
    {SYS_ioctl, "ioctl of a terminal"},
};

std::string family_name(std::uint64_t family) {
  switch (family) {
    case AF_NETLINK:
      return "AF_NETLINK";
    case AF_PACKET:
      return "AF_PACKET";
    case AF_VSOCK:
      return "AF_VSOCK";
    case AF_ALG:
      return "AF_ALG";
    case AF_BLUETOOTH:
      return "AF_BLUETOOTH";
    case AF_CAN:
      return "AF_CAN";
    case AF_XDP:
      return "AF_XDP";
    default:
      return "family " + std::to_string(family);
  }
}

}  // namespace

std::string refused_call_name(int number, std::uint64_t family) {
  if (number == SYS_socket || number == SYS_socketpair)
    return "socket " + family_name(family & 0xffffffffu);
  for (const CallName& entry : kNames) {
    if (entry.number == number) return entry.name;
  }
  return "system call " + std::to_string(number);
}

std::optional<std::string> Refusals::take(short ready, Answer answer) {
  if ((ready & POLLIN) == 0) {
    // No process with that filter lives any more. Receiving now would wait for ever: kernels before
    // 6.11 do not tell a receiver that nobody is left.
    if ((ready & (POLLHUP | POLLERR | POLLNVAL)) != 0) listener_.reset();
    return std::nullopt;
  }
  // The structures may be larger in the running kernel than in our headers.
  union {
    seccomp_notif value;
    char room[1024];
  } request;
  std::memset(&request, 0, sizeof request);
  if (::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_RECV, &request) != 0) {
    // ENOENT: the caller died meanwhile. Anything else is no listener: a hostile guest sent it.
    if (errno != ENOENT && errno != EINTR) listener_.reset();
    return std::nullopt;
  }
  if (answer == Answer::kHold) {
    held_ = true;
  } else {
    union {
      seccomp_notif_resp value;
      char room[256];
    } refusal;
    std::memset(&refusal, 0, sizeof refusal);
    refusal.value.id = request.value.id;
    refusal.value.error = -EPERM;
    (void)::ioctl(listener_.get(), SECCOMP_IOCTL_NOTIF_SEND, &refusal);
  }
  const seccomp_data& call = request.value.data;
  std::string what = refused_call_name(call.nr, call.args[0]);
  const auto number = static_cast<std::uint32_t>(call.nr);
  const auto known = std::find_if(list_.begin(), list_.end(), [&](const Refusal& refusal) {
    return refusal.syscall == number && refusal.what == what;
  });
  if (known != list_.end()) {
    ++known->count;
  } else if (list_.size() < kMaxRefusals) {
    list_.push_back({number, 1, what});
  }
  return what;
}

}  // namespace caisson::launcher
