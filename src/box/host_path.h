// Host paths that a spec names, opened once and never looked up again.
//
// A path is opened without following any symbolic link, because some part of it may lie in a folder
// that an earlier sandbox could write: a link left there must not widen the next grant. The one
// exception are links directly in "/" (/bin, /tmp, /home on some hosts), which only root can make.
// Only regular files and directories can be granted; kernel file systems (/proc, /sys, …) cannot,
// since they hand out the host itself. Calls block; any thread.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::box {

struct HostPath {
  Fd fd;  // O_PATH
  bool directory = false;
  std::uint32_t uid = 0, gid = 0;  // owner
};

// `path` is absolute or relative to the working directory. Errors: not_found, permission_denied,
// invalid_argument (a link on the way: names the link and its target; not a file or directory).
Result<HostPath> open_host_path(const std::string& path);

// A place that results will be written to: the folder is open before anything runs.
struct HostTarget {
  Fd folder;          // O_PATH; what is written gets `name` in it
  std::string name;   // one path component
  Fd inside;          // O_PATH; the directory `folder/name`, where there is one already
  std::string shown;  // the path as given, for messages
};
// `path` names a file or directory to be made, or an existing directory (also with a final slash)
// to write into. Errors: as above; not_found where the folder does not exist.
Result<HostTarget> open_host_target(const std::string& path);

// The same file opened anew, for reading for example. `fd` is an O_PATH descriptor.
Result<Fd> reopen(int fd, int flags);

// "name" of the last component of `path`, without slashes; empty for "/" and what ends in "." or
// "..".
std::string last_component(const std::string& path);

}  // namespace caisson::box
