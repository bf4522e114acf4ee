// How a server that root started gives root's rights up, before it reads a byte of a client's.
//
// What needs them stays with caisson-maker (maker/maker.h), which is started before. Of an ordinary
// user's server the identity stays, and the rest happens as well: no capability, no way to gain
// any, and a filter that leaves it the descriptors it has, its own files, and threads. No state;
// all of this before the process has a second thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace caisson::api {

// The id of root's server on a host without the user kServerUser: nobody's (ARCHITECTURE.md, "Two
// user namespaces").
inline constexpr uid_t kServerId = 0x7ffcf002;

struct ServerUser {
  uid_t uid = kServerId;
  gid_t gid = kServerId;
  std::vector<gid_t> groups;  // the others
};

// `name` as ServerConfig::user. Errors: not_found, invalid_argument (root).
Result<ServerUser> find_server_user(const std::string& name);

// Makes the folder (0700) where it is missing, and gives it with the files in it to the user. What
// is the user's already is left as it is, so that nothing that somebody else's rights put there is
// ever given away: of another's folder the regular files that are its owner's and have no other
// name.
Status give_folder(const std::string& path, const ServerUser& user);
// Makes the folder where it is missing; others may go through it and not list it.
Status make_passable(const std::string& path);

// Becomes the user for good: whatever it starts has no capability either.
Status become(const ServerUser& user);
// No capability, no new rights, not dumpable, and the filter.
Status confine_server();

}  // namespace caisson::api
