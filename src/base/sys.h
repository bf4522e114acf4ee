// System calls that the C library of Debian 12 does not wrap, and small compounds of those it does.
//
// Each returns a Result whose error names the call and its object. Descriptors are close-on-exec.
// Nothing here decides anything; no state, any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::sys {

// Opens `path` below `directory_fd`; `resolve` are RESOLVE_* bits of openat2(2).
Result<Fd> openat2(int directory_fd, const std::string& path, std::uint64_t flags,
                   std::uint64_t mode, std::uint64_t resolve);

// Writes all of `bytes` to the file `path` below `directory_fd` in one write(2), as control files
// want.
Status write_file(int directory_fd, const std::string& path, std::string_view bytes);
// The file's contents, at most `limit` bytes; a longer file is an error.
Result<std::string> read_file(int directory_fd, const std::string& path, std::size_t limit);
// Whether the path leads to this file.
bool is_same_file(int file_fd, const std::string& path);
// The contents from the start of a file that is open already (pread), at most `limit` bytes.
Result<std::string> read_again(int file_fd, std::size_t limit);
// A file without a name that has these bytes and stays as it is (memfd_create(2), sealed), read
// from its start. `name` is what /proc shows.
Result<Fd> memory_file(const char* name, std::string_view bytes);

// The new mount interface. Paths are relative to their descriptor; an empty path means the
// descriptor itself.
Result<Fd> open_tree(int directory_fd, const std::string& path, unsigned flags);
Status move_mount(int mount_fd, int directory_fd, const std::string& path);
struct MountOption {
  const char* key;
  const char* value;  // nullptr: a flag
};
// A new, detached mount of file system `type`; `attributes` are MOUNT_ATTR_* bits.
Result<Fd> make_mount(const char* type, std::span<const MountOption> options, unsigned attributes);
// Private: what is mounted below its source later does not show up in it.
enum class Propagation : std::uint8_t { kPrivate, kUnchanged };
Status mount_setattr(int mount_fd, bool recursive, std::uint64_t set, std::uint64_t clear,
                     Propagation propagation = Propagation::kPrivate);
// Gives a detached mount the id mapping of a user namespace.
Status mount_idmap(int mount_fd, int userns_fd);

Result<Fd> pidfd_open(pid_t pid);
Status pidfd_kill(int pid_fd, int signal);

// At most so many descriptors travel with one message of ours.
inline constexpr std::size_t kMaxPassedDescriptors = 128;
// sendmsg(2) with descriptors, tried again where a signal came between: how many bytes were taken
// (the descriptors go with the first), or -1 and errno. MSG_NOSIGNAL is always set.
//
// The kernel allows a send while all processes of the user together have no more descriptors under
// way than the sender may have open files. A sandbox of the same user, whose own limit is lower
// than the host's, must not be able to stop others: where the send fails for that, it is tried once
// more with the soft limit at the hard one, which this process has for that moment.
ssize_t send_part(int socket_fd, std::string_view bytes, std::span<const int> descriptors,
                  int flags = 0);
// recvmsg(2) with descriptors, the same way. Whatever came along is in `descriptors`, also where
// not all of it had room.
struct ReceivedPart {
  ssize_t count = -1;  // bytes; 0 is the end; -1 with errno
  std::vector<Fd> descriptors;
  bool cut = false;  // the message (on SOCK_SEQPACKET) or its descriptors were more than had room
};
ReceivedPart receive_part(int socket_fd, std::span<char> room, int flags = 0);

// Sends and receives one whole message with descriptors. recv_message returns the bytes; an empty
// string is the end of the connection. A message or descriptors without room are an error.
Status send_message(int socket_fd, std::string_view bytes, std::span<const int> descriptors);
struct Message {
  std::string bytes;
  std::vector<Fd> descriptors;
};
Result<Message> recv_message(int socket_fd, std::size_t limit);

// Microseconds of CLOCK_MONOTONIC.
std::uint64_t monotonic_us();

}  // namespace caisson::sys
