#include "db/server_secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/encoding.h"
#include "base/secret.h"
#include "base/sha256.h"
#include "base/sys.h"
#include "db/private_file.h"

namespace caisson::db {
namespace {

constexpr std::size_t kSecretBytes = 32;
constexpr const char* kName = "secret";

// Made under another name and linked, so that it is whole wherever it is seen, and so that of two
// processes one makes it.
Status make_secret(int folder_fd) {
  const std::string beside = "secret." + random_hex(16);
  const Fd file(::openat(folder_fd, beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return fail_errno("make " + beside);
  const auto fill = [&]() -> Status {
    TRY(give_to_owner(folder_fd, file.get()));
    const std::string bytes = random_bytes(kSecretBytes);
    const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    if (written < 0) return fail_errno("write " + beside);
    if (written != static_cast<ssize_t>(bytes.size())) {
      return fail(Error::exhausted("no room for " + beside));
    }
    if (::fsync(file.get()) != 0) return fail_errno("flush " + beside);
    if (::linkat(folder_fd, beside.c_str(), folder_fd, kName, 0) != 0 && errno != EEXIST) {
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

Result<std::string> read_secret(int folder_fd) {
  const Fd file(::openat(folder_fd, kName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!file.valid()) return fail_errno("open");
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fail_errno("stat");
  if (!S_ISREG(status.st_mode) || (status.st_mode & 077) != 0) {
    return fail(
        Error::precondition("others may read it; allowed is a file that is its owner's "
                            "alone (chmod 0600)"));
  }
  if (status.st_size != static_cast<off_t>(kSecretBytes)) {
    return fail(
        Error::precondition("found " + std::to_string(status.st_size) + " bytes; allowed are 32"));
  }
  return sys::read_again(file.get(), kSecretBytes);
}

std::string_view name_of(TokenPurpose purpose) {
  switch (purpose) {
    case TokenPurpose::kEnvdAccess:
      return "envd-access";
    case TokenPurpose::kTraffic:
      return "traffic";
    case TokenPurpose::kUpload:
      return "upload";
    case TokenPurpose::kVault:
      return "vault";
  }
  return "";
}

}  // namespace

Result<ServerSecret> ServerSecret::open(const std::string& directory) {
  TRY_ASSIGN(const Fd folder, open_private_directory(directory));
  auto secret = read_secret(folder.get());
  if (!secret.has_value() && secret.error().code() == Code::kNotFound) {
    if (auto made = make_secret(folder.get()); !made.has_value()) {
      return fail(std::move(made).error().with(directory));
    }
    secret = read_secret(folder.get());
  }
  if (!secret.has_value()) {
    return fail(std::move(secret).error().with(directory + "/" + kName));
  }
  return ServerSecret(std::move(*secret));
}

std::string ServerSecret::token(TokenPurpose purpose, std::string_view sandbox_id) const {
  // No name of a purpose holds a NUL, so that no other pair gives the same message.
  std::string message(name_of(purpose));
  message += '\0';
  message += sandbox_id;
  return hex_encode(hmac_sha256(secret_, message));
}

bool ServerSecret::matches(TokenPurpose purpose, std::string_view sandbox_id,
                           std::string_view token) const {
  return same_secret(this->token(purpose, sandbox_id), token);
}

}  // namespace caisson::db
