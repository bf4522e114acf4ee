#include "base/sys.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/kernel_abi.h"

namespace caisson::sys {

Result<Fd> openat2(int directory_fd, const std::string& path, std::uint64_t flags,
                   std::uint64_t mode, std::uint64_t resolve) {
  open_how how{};
  how.flags = flags | O_CLOEXEC;
  how.mode = mode;
  how.resolve = resolve;
  const long fd = ::syscall(SYS_openat2, directory_fd, path.c_str(), &how, sizeof how);
  if (fd < 0) return fail_errno("openat2 " + path);
  return Fd(static_cast<int>(fd));
}

Status write_file(int directory_fd, const std::string& path, std::string_view bytes) {
  const Fd file(::openat(directory_fd, path.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid()) return fail_errno("open " + path);
  const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
  if (written < 0) return fail_errno("write " + path);
  if (static_cast<std::size_t>(written) != bytes.size())
    return fail(Error::internal("write " + path + ": only a part was taken"));
  return {};
}

Result<std::string> read_file(int directory_fd, const std::string& path, std::size_t limit) {
  const Fd file(::openat(directory_fd, path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return fail_errno("open " + path);
  std::string contents;
  // Grown as needed: most of these files are far shorter than what is allowed.
  std::size_t size = 0;
  for (;;) {
    if (size == contents.size())
      contents.resize(std::min(limit + 1, std::max<std::size_t>(4096, 2 * size)));
    const ssize_t got = ::read(file.get(), contents.data() + size, contents.size() - size);
    if (got < 0) {
      if (errno == EINTR) continue;
      return fail_errno("read " + path);
    }
    size += static_cast<std::size_t>(got);
    if (got == 0) break;
    if (size > limit) return fail(Error::exhausted("read " + path + ": longer than allowed"));
  }
  contents.resize(size);
  return contents;
}

bool is_same_file(int file_fd, const std::string& path) {
  struct stat open = {}, named = {};
  return ::fstat(file_fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_ino == named.st_ino && open.st_dev == named.st_dev;
}

Result<std::string> read_again(int file_fd, std::size_t limit) {
  std::string contents;
  std::size_t size = 0;
  while (size < limit) {
    if (size == contents.size())
      contents.resize(std::min(limit, std::max<std::size_t>(1024, 2 * size)));
    const ssize_t got =
        ::pread(file_fd, contents.data() + size, contents.size() - size, static_cast<off_t>(size));
    if (got < 0) {
      if (errno == EINTR) continue;
      return fail_errno("pread");
    }
    size += static_cast<std::size_t>(got);
    // A file of the kernel's, read whole in one call, need not be asked again.
    if (got == 0 || size < contents.size()) break;
  }
  contents.resize(size);
  return contents;
}

Result<Fd> memory_file(const char* name, std::string_view bytes) {
  Fd file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return fail_errno("memfd_create");
  while (!bytes.empty()) {
    const ssize_t count = TEMP_FAILURE_RETRY(::write(file.get(), bytes.data(), bytes.size()));
    if (count < 0) return fail_errno(std::string("write of the memory file ") + name);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) !=
      0)
    return fail_errno("fcntl F_ADD_SEALS");
  (void)::lseek(file.get(), 0, SEEK_SET);
  return file;
}

Result<Fd> open_tree(int directory_fd, const std::string& path, unsigned flags) {
  const long fd = ::syscall(SYS_open_tree, directory_fd, path.c_str(),
                            flags | OPEN_TREE_CLOEXEC | (path.empty() ? AT_EMPTY_PATH : 0u));
  if (fd < 0) return fail_errno("open_tree " + path);
  return Fd(static_cast<int>(fd));
}

Status move_mount(int mount_fd, int directory_fd, const std::string& path) {
  const unsigned flags = MOVE_MOUNT_F_EMPTY_PATH | (path.empty() ? MOVE_MOUNT_T_EMPTY_PATH : 0u);
  if (::syscall(SYS_move_mount, mount_fd, "", directory_fd, path.c_str(), flags) != 0)
    return fail_errno("move_mount " + path);
  return {};
}

Result<Fd> make_mount(const char* type, std::span<const MountOption> options, unsigned attributes) {
  const long raw = ::syscall(SYS_fsopen, type, FSOPEN_CLOEXEC);
  if (raw < 0) return fail_errno(std::string("fsopen ") + type);
  const Fd context(static_cast<int>(raw));
  for (const MountOption& option : options) {
    const unsigned command = option.value == nullptr ? FSCONFIG_SET_FLAG : FSCONFIG_SET_STRING;
    if (::syscall(SYS_fsconfig, context.get(), command, option.key, option.value, 0) != 0)
      return fail_errno(std::string("fsconfig ") + type + " " + option.key);
  }
  if (::syscall(SYS_fsconfig, context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
    return fail_errno(std::string("fsconfig create ") + type);
  const long mount = ::syscall(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, attributes);
  if (mount < 0) return fail_errno(std::string("fsmount ") + type);
  return Fd(static_cast<int>(mount));
}

Status mount_setattr(int mount_fd, bool recursive, std::uint64_t set, std::uint64_t clear,
                     Propagation propagation) {
  mount_attr attributes{};
  attributes.attr_set = set;
  if (propagation == Propagation::kPrivate) attributes.propagation = MS_PRIVATE;
  attributes.attr_clr = clear;
  const unsigned flags = AT_EMPTY_PATH | (recursive ? AT_RECURSIVE : 0u);
  if (::syscall(SYS_mount_setattr, mount_fd, "", flags, &attributes, sizeof attributes) != 0)
    return fail_errno("mount_setattr");
  return {};
}

Status mount_idmap(int mount_fd, int userns_fd) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_IDMAP;
  attributes.userns_fd = static_cast<std::uint64_t>(userns_fd);
  if (::syscall(SYS_mount_setattr, mount_fd, "", AT_EMPTY_PATH, &attributes, sizeof attributes) !=
      0)
    return fail_errno("mount_setattr idmap");
  return {};
}

Result<Fd> pidfd_open(pid_t pid) {
  const long fd = ::syscall(SYS_pidfd_open, pid, 0);
  if (fd < 0) return fail_errno("pidfd_open");
  return Fd(static_cast<int>(fd));
}

Status pidfd_kill(int pid_fd, int signal) {
  if (::syscall(SYS_pidfd_send_signal, pid_fd, signal, nullptr, 0) != 0)
    return fail_errno("pidfd_send_signal");
  return {};
}

namespace {

ssize_t send_again(int socket_fd, const msghdr& message, int flags) {
  ssize_t sent;
  do {
    sent = ::sendmsg(socket_fd, &message, flags);
  } while (sent < 0 && errno == EINTR);
  return sent;
}

}  // namespace

ssize_t send_part(int socket_fd, std::string_view bytes, std::span<const int> descriptors,
                  int flags) {
  VERIFY(descriptors.size() <= kMaxPassedDescriptors);
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPassedDescriptors)];
  if (!descriptors.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = send_again(socket_fd, message, flags | MSG_NOSIGNAL);
  if (sent >= 0 || errno != ETOOMANYREFS) return sent;
  rlimit files{};
  int error_number = errno;
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
    const rlimit most{files.rlim_max, files.rlim_max};
    (void)::setrlimit(RLIMIT_NOFILE, &most);
    sent = send_again(socket_fd, message, flags | MSG_NOSIGNAL);
    error_number = errno;
    (void)::setrlimit(RLIMIT_NOFILE, &files);
  }
  errno = error_number;
  return sent;
}

ReceivedPart receive_part(int socket_fd, std::span<char> room, int flags) {
  iovec part{room.data(), room.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxPassedDescriptors)];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ReceivedPart received;
  do {
    received.count = ::recvmsg(socket_fd, &message, flags | MSG_CMSG_CLOEXEC);
  } while (received.count < 0 && errno == EINTR);
  if (received.count < 0) return received;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      received.descriptors.emplace_back(fd);
    }
  }
  received.cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  return received;
}

Status send_message(int socket_fd, std::string_view bytes, std::span<const int> descriptors) {
  const ssize_t sent = send_part(socket_fd, bytes, descriptors);
  if (sent < 0) return fail_errno("sendmsg");
  if (static_cast<std::size_t>(sent) != bytes.size())
    return fail(Error::internal("sendmsg: only a part was taken"));
  return {};
}

Result<Message> recv_message(int socket_fd, std::size_t limit) {
  Message result;
  // The size first: room for the largest one would be so many pages for nothing.
  ssize_t size;
  bool reset = false;
  do {
    size = ::recv(socket_fd, nullptr, 0, MSG_PEEK | MSG_TRUNC);
    // The other end has gone with something of ours unread. That is told once, and before what it
    // had said itself.
  } while (size < 0 && (errno == EINTR || (errno == ECONNRESET && !std::exchange(reset, true))));
  if (size < 0) return fail_errno("recv");
  // Of a stream, and at the end, it is not told.
  if (size == 0) size = static_cast<ssize_t>(limit);
  result.bytes.resize(std::min(limit, static_cast<std::size_t>(size)));
  ReceivedPart received = receive_part(socket_fd, result.bytes);
  if (received.count < 0) return fail_errno("recvmsg");
  if (received.cut) return fail(Error::invalid("recvmsg: the message is longer than allowed"));
  result.bytes.resize(static_cast<std::size_t>(received.count));
  result.descriptors = std::move(received.descriptors);
  return result;
}

std::uint64_t monotonic_us() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec) / 1000;
}

}  // namespace caisson::sys
