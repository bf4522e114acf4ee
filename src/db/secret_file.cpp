#include "db/secret_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/sys.h"
#include "db/private_file.h"

namespace caisson::db {

// Made under another name and linked, so that it is whole wherever it is seen, and so that of two
// processes one makes it.
Status make_secret_file(int folder_fd, const std::string& name, std::string_view bytes) {
  const std::string beside = name + "." + random_hex(16);
  const Fd file(::openat(folder_fd, beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return fail_errno("make " + beside);
  const auto fill = [&]() -> Status {
    TRY(give_to_owner(folder_fd, file.get()));
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0) return fail_errno("write " + beside);
    if (written != static_cast<ssize_t>(bytes.size())) {
      return fail(Error::exhausted("no room for " + beside));
    }
    if (::fsync(file.get()) != 0) return fail_errno("flush " + beside);
    if (::linkat(folder_fd, beside.c_str(), folder_fd, name.c_str(), 0) != 0 && errno != EEXIST) {
      return fail_errno("link " + beside);
    }
    return {};
  };
  auto filled = fill();
  ::unlinkat(folder_fd, beside.c_str(), 0);
  TRY(filled);
  if (::fsync(folder_fd) != 0) return fail_errno("flush the folder of the secret");
  return {};
}

Result<SecretValue> read_secret_file(int folder_fd, const std::string& name, std::size_t size) {
  const Fd file(::openat(folder_fd, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file.valid()) return fail_errno("open");
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fail_errno("stat");
  if (!S_ISREG(status.st_mode) || (status.st_mode & 077) != 0) {
    return fail(
        Error::precondition("others may read it; allowed is a file that is its owner's "
                            "alone (chmod 0600)"));
  }
  if (status.st_size != static_cast<off_t>(size)) {
    return fail(Error::precondition("found " + std::to_string(status.st_size) +
                                    " bytes; allowed are " + std::to_string(size)));
  }
  TRY_ASSIGN(std::string bytes, sys::read_again(file.get(), size));
  return SecretValue::take(bytes);
}

Result<SecretValue> open_secret_file(int folder_fd, const std::string& name) {
  auto secret = read_secret_file(folder_fd, name, kSecretFileBytes);
  if (secret.has_value() || secret.error().code() != Code::kNotFound) return secret;
  std::string bytes = random_bytes(kSecretFileBytes);
  const SecretValue made = SecretValue::take(bytes);
  TRY(make_secret_file(folder_fd, name, made.bytes()));
  return read_secret_file(folder_fd, name, kSecretFileBytes);
}

}  // namespace caisson::db
