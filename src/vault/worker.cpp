#include "vault/worker.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>
#include <vector>

#include "base/call_filter.h"
#include "base/kernel_abi.h"
#include "base/sys.h"
#include "egress/confine.h"
#include "egress/keys_file.h"
#include "policy/network_document.h"
#include "vault/lock_memory.h"
#include "vault/protocol.h"

namespace caisson::vault {
namespace {

constexpr int kAllowed[] = {
    SYS_read,
    SYS_write,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_sendmsg,
    SYS_close,
    SYS_fstat,
    SYS_lseek,
    SYS_poll,
    SYS_ppoll,
    // keys of sandboxes, which go on by their descriptor
    SYS_memfd_create,
    SYS_fchmod,
    // memory, time, ending
    SYS_brk,
    SYS_mmap,
    SYS_munmap,
    SYS_mremap,
    SYS_madvise,
    SYS_mprotect,
    SYS_futex,
    SYS_clock_gettime,
    SYS_gettimeofday,
    SYS_getrandom,
    SYS_getpid,
    SYS_gettid,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
};

Status filter_system_calls() {
  CallFilter filter;
  for (const int number : kAllowed) filter.allow(number);
  filter.allow_where(SYS_fcntl, 1, ~0u, {F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_ADD_SEALS});
  // Places alone: nothing can be read or written by one.
  filter.allow_where(SYS_openat, 2, ~0u, {O_PATH | O_CLOEXEC});
  filter.allow_own_signals();
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  filter.allow(SYS_sigaltstack);  // of the sanitizer's own
#endif
#endif
  return filter.install("caisson-vault");
}

Status drop_rights() {
  if (::geteuid() == 0) {
    for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability) >= 0; ++capability)
      if (::prctl(PR_CAPBSET_DROP, capability) != 0) return fail_errno("prctl capbset_drop");
    if (::setgroups(0, nullptr) != 0) return fail_errno("setgroups");
    if (::setresgid(egress::kVaultId, egress::kVaultId, egress::kVaultId) != 0)
      return fail_errno("setresgid");
    if (::setresuid(egress::kVaultId, egress::kVaultId, egress::kVaultId) != 0)
      return fail_errno("setresuid");
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capset, &header, data) != 0) return fail_errno("capset");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("prctl no_new_privs");
  return {};
}

struct Answer {
  std::string bytes;
  std::shared_ptr<const Fd> file = nullptr;  // goes along
};

Result<Answer> carry_out(const Engine& engine, const Request& request, int body_fd) {
  switch (request.operation) {
    case Operation::kSeal: {
      TRY_ASSIGN(const policy::NetworkPolicy rules,
                 policy::parse_written_network_policy(request.rules));
      TRY_ASSIGN(Sealed sealed, engine.seal(rules, request.values, request.before));
      std::vector<std::string> texts = {std::move(sealed.text)};
      for (const auto& [name, placeholder] : sealed.variables)
        texts.insert(texts.end(), {name, placeholder});
      return Answer{.bytes = encode_done(texts)};
    }
    case Operation::kKeep: {
      if (body_fd < 0) return fail(Error::invalid("a request to caisson-vault without its body"));
      TRY_ASSIGN(Kept kept, engine.keep(request.id, body_fd));
      return Answer{.bytes = encode_done({std::move(kept.sealed), std::move(kept.rest)})};
    }
    case Operation::kMakeKeys: {
      TRY_ASSIGN(NetworkKeys keys, engine.make_keys());
      TRY_ASSIGN(Fd place, egress::hide_keys(keys.file->get()));
      return Answer{.bytes = encode_done({keys.number, keys.certificate}),
                    .file = std::make_shared<const Fd>(std::move(place))};
    }
    case Operation::kSealForGateway: {
      TRY_ASSIGN(std::string sealed, engine.seal_for_gateway(request.id, request.sealed));
      return Answer{.bytes = encode_done({std::move(sealed)})};
    }
  }
  return fail(Error::internal("an operation that is none"));
}

// Waits for nobody: whoever does not read has no answer.
void answer(int socket_fd, const Answer& what) {
  static_cast<void>(::fcntl(socket_fd, F_SETFL, O_NONBLOCK));
  const int file_fd = what.file == nullptr ? -1 : what.file->get();
  static_cast<void>(
      sys::send_message(socket_fd, what.bytes, std::span(&file_fd, file_fd < 0 ? 0u : 1u)));
}

// False: the other end has gone.
bool take_request(int control_fd, const Engine& engine) {
  auto message = sys::recv_message(control_fd, kMostRequest);
  // One that is cut belongs to no server of ours, but is no reason to end.
  if (!message.has_value()) return message.error().error_number() == 0;
  if (message->bytes.empty()) return false;
  if (message->descriptors.empty() || message->descriptors.size() > 2) {
    wipe(message->bytes);
    return true;
  }
  const int body_fd = message->descriptors.size() == 2 ? message->descriptors[1].get() : -1;
  if (body_fd >= 0) static_cast<void>(::fcntl(body_fd, F_SETFL, O_NONBLOCK));
  const auto request = decode_request(message->bytes);
  wipe(message->bytes);
  auto done = request.has_value() ? carry_out(engine, *request, body_fd)
                                  : Result<Answer>(fail(request.error()));
  answer(message->descriptors[0].get(),
         done.has_value() ? *done : Answer{.bytes = encode_error(done.error())});
  return true;
}

}  // namespace

Result<std::string> confine_worker(int control_fd, int parent) {
  if (control_fd != STDERR_FILENO + 1) return fail(Error::internal("the control socket is not 3"));
  if (::close_range(static_cast<unsigned>(control_fd) + 1, ~0u, 0) != 0)
    return fail_errno("close_range");
  static_cast<void>(::prctl(PR_SET_NAME, "caisson-vault"));
  // While it has the right to.
  std::string not_locked = lock_memory();
  TRY(drop_rights());
  // After the ids, whose change allows them again.
  TRY(egress::forbid_dumps());
  // And that clears it.
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return fail_errno("prctl pdeathsig");
  if (::getppid() != parent)
    return fail(Error(Code::kCancelled, "whoever started caisson-vault is gone"));
  TRY(filter_system_calls());
  return not_locked;
}

void serve(int control_fd, const Engine& engine) {
  while (take_request(control_fd, engine)) {
  }
}

}  // namespace caisson::vault
