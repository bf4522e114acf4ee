#include "guest/identity.h"

#include <grp.h>
#include <sched.h>
#include <unistd.h>

#include <string>

namespace caisson::guest {

Status assume(const Identity& identity) {
  if (identity.userns_fd >= 0 && ::setns(identity.userns_fd, CLONE_NEWUSER) != 0)
    return fail_errno("setns to the command's user namespace");
  if (identity.userns_fd < 0 && ::geteuid() != 0 && identity.uid == ::geteuid() &&
      identity.gid == ::getegid())
    return {};
  if (::setgroups(identity.groups.size(), identity.groups.data()) != 0)
    return fail_errno("setgroups");
  if (::setresgid(identity.gid, identity.gid, identity.gid) != 0)
    return fail_errno("setresgid " + std::to_string(identity.gid));
  if (::setresuid(identity.uid, identity.uid, identity.uid) != 0)
    return fail_errno("setresuid " + std::to_string(identity.uid));
  return {};
}

}  // namespace caisson::guest
