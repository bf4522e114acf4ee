// The `host` image's /etc as one directory, made once and shown read-only to every sandbox.
//
// Writing some twenty files and looking through the host's /etc takes longer than the rest of a
// sandbox's root. What comes out is the same each time until the host's own files change, so it is
// kept under RUN/etc by a name that holds the ids of the command's user and a digest of everything
// it was made from: inode, size and change time of each source and of every directory that was
// looked through. A directory that is there is complete (made beside, then renamed) and never
// changes.
//
// Whoever shows it holds a shared lock on it. Whoever makes one removes those of an /etc that is no
// more, where nobody has such a lock.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "image/host_etc.h"

namespace caisson::image {

// The host name and machine id that the kept files carry; a sandbox with others covers those files.
inline constexpr const char* kDefaultHostname = "sandbox";

// The directory for a command that runs as this user, made where it is missing. It stays for as
// long as the Fd, or a copy of it in another process, is open.
Result<Fd> host_etc_directory(int run_directory_fd, std::uint32_t uid, std::uint32_t gid,
                              const std::string& etc_path = "/etc");

// What a process that was killed while it made one has left. Removed by whoever holds RUN/sweep
// exclusively.
bool has_unfinished_host_etc(int run_directory_fd);
void sweep_host_etc(int run_directory_fd);

}  // namespace caisson::image
