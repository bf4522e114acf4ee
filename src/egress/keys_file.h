// The file of a sandbox's keys on its way from caisson-vault, which makes it, through the server,
// which must not read it, to caisson-maker, whose launcher gives it to gateways.
//
// What is passed on is a place alone (O_PATH), of a file that its owner alone may open: as root the
// vault's id, which the server has not, while root's maker may open everything. Of an ordinary
// user's server both are that user, and nothing but the server's honesty keeps it from opening it.
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::egress {

// The host id of root's caisson-vault: nobody's (ARCHITECTURE.md, "Two user namespaces").
inline constexpr uid_t kVaultId = 0x7ffcf003;

// The place of a file without a name (sys::memory_file()) of this process's own.
Result<Fd> hide_keys(int file_fd);
// The file, for reading, of a place that somebody has passed on who is not trusted: that it has no
// name, cannot be changed, and is `owner`'s. Error: invalid_argument.
Result<Fd> open_keys(int place_fd, uid_t owner);

}  // namespace caisson::egress
