#include "egress/keys_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

namespace caisson::egress {
namespace {

std::string path_of(int fd) {
  return "/proc/self/fd/" + std::to_string(fd);
}

}  // namespace

Result<Fd> hide_keys(int file_fd) {
  if (::fchmod(file_fd, S_IRUSR) != 0) return fail_errno("fchmod of a sandbox's keys");
  Fd place(::open(path_of(file_fd).c_str(), O_PATH | O_CLOEXEC));
  if (!place.valid()) return fail_errno("open the place of a sandbox's keys");
  return place;
}

Result<Fd> open_keys(int place_fd, uid_t owner) {
  const auto refuse = [] {
    return fail(Error::invalid("the keys of a sandbox are not the vault's"));
  };
  struct stat facts{};
  if (::fstat(place_fd, &facts) != 0) return fail_errno("stat of a sandbox's keys");
  // Before it is opened: opening some files does something.
  if (!S_ISREG(facts.st_mode) || facts.st_uid != owner || facts.st_nlink != 0) return refuse();
  Fd file(::open(path_of(place_fd).c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY));
  if (!file.valid()) return fail_errno("open a sandbox's keys");
  constexpr int kWhole = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kWhole) != kWhole) return refuse();
  return file;
}

}  // namespace caisson::egress
