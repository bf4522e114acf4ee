// What caisson-image-fetch gives up before it speaks to anybody: as root its user, every
// capability, every file but those that name resolution and certificates need (Landlock), and every
// system call that a client of TCP does not make (seccomp). It keeps the network. It speaks with
// hostile servers, so all of this must succeed, or it does not start.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"

namespace caisson::image {

// The host id that root's fetcher runs as: nobody's (ARCHITECTURE.md, "Two user namespaces").
inline constexpr unsigned kFetchId = 0x7ffcf000;

// The kernel ends this process when its parent ends. Cleared by a change of user, so it is called
// by confine() again.
Status end_with_parent();

// `readable` are further files and folders, such as SSL_CERT_DIR; those that are absent do not
// matter.
Status confine_fetcher(const std::vector<std::string>& readable);

}  // namespace caisson::image
