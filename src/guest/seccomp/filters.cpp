#include "guest/seccomp/filters.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "seccomp_tables.h"

namespace caisson::guest::seccomp {
namespace {

// Returns seccomp(2)'s own result, -1 with errno.
long load(std::span<const sock_filter> program, unsigned long flags) {
  const sock_fprog description = {static_cast<unsigned short>(program.size()),
                                  const_cast<sock_filter*>(program.data())};
  return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &description);
}

}  // namespace

std::span<const sock_filter> table(Profile profile, Reporting reporting) {
  const bool listener = reporting == Reporting::kListener;
  switch (profile) {
    case Profile::kDefault:
      break;
    case Profile::kBrowser:
      return listener ? std::span<const sock_filter>(tables::kBrowserListener)
                      : std::span<const sock_filter>(tables::kBrowser);
    case Profile::kDebug:
      return listener ? std::span<const sock_filter>(tables::kDebugListener)
                      : std::span<const sock_filter>(tables::kDebug);
  }
  return listener ? std::span<const sock_filter>(tables::kDefaultListener)
                  : std::span<const sock_filter>(tables::kDefault);
}

std::span<const sock_filter> no_setid_table() {
  return tables::kNoSetid;
}

Status install(std::span<const sock_filter> program) {
  if (load(program, 0) != 0) return fail_errno("seccomp");
  return {};
}

Result<Fd> install_with_listener(std::span<const sock_filter> program) {
  // A caller whose call is being answered is not woken by ordinary signals, so that a program that
  // signals itself often (Go's scheduler) does not ask again and again.
  const long fd =
      load(program, SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);
  if (fd < 0) return fail_errno("seccomp (listener)");
  return Fd(static_cast<int>(fd));
}

}  // namespace caisson::guest::seccomp
