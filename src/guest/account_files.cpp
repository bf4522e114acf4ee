// /etc/passwd and /etc/group of the sandbox, which are whatever its programs made of them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"
#include "guest/users.h"

namespace caisson::guest {
namespace {

Result<std::string> read_account_file(int root_fd, const std::string& name) {
  // Not by openat2: a worker that reads names is confined already, and its filter has no openat2.
  const Fd etc(::openat(root_fd, "etc", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!etc.valid()) return fail_errno("open /etc");
  const Fd file(
      ::openat(etc.get(), name.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW | O_CLOEXEC));
  const std::string path = "/etc/" + name;
  if (!file.valid()) return fail_errno("open " + path);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fail_errno("fstat " + path);
  if (!S_ISREG(status.st_mode)) return fail(Error::precondition(path + " is not a regular file"));
  if (static_cast<std::uint64_t>(status.st_size) > kMaxAccountFile)
    return fail(Error::exhausted(path + " is longer than 1 MiB"));
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t filled = 0;
  while (filled < text.size()) {
    const ssize_t count = ::read(file.get(), text.data() + filled, text.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno("read " + path);
    if (count == 0) break;
    filled += static_cast<std::size_t>(count);
  }
  text.resize(filled);
  return text;
}

AccountFiles files_below(int root_fd) {
  return {[root_fd] { return read_account_file(root_fd, "passwd"); },
          [root_fd] { return read_account_file(root_fd, "group"); }};
}

}  // namespace

Result<Account> resolve_user(std::string_view user, int root_fd) {
  return resolve_user(user, files_below(root_fd));
}

AccountNames AccountNames::read(int root_fd) {
  return read(files_below(root_fd));
}

}  // namespace caisson::guest
