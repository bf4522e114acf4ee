// Whom a forked child becomes before it touches anything that is the command's.
#pragma once

#include <sys/types.h>

#include <vector>

#include "base/error.h"

namespace caisson::guest {

struct Identity {
  int userns_fd = -1;  // the user namespace to enter; -1: stay
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;
};

// Enters the user namespace and takes the groups, the gid and the uid for good.
Status assume(const Identity& identity);

}  // namespace caisson::guest
