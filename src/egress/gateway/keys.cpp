#include "egress/gateway/keys.h"

#include <string>
#include <utility>

#include "base/sys.h"
#include "egress/secrets/sealed.h"

namespace caisson::egress {
namespace {

constexpr std::size_t kMostKeys = 16 * 1024;

}  // namespace

Result<Fd> write_keys(std::string_view sealing, const io::Authority& authority) {
  if (sealing.size() != kSealingKey) return fail(Error::invalid("a sealing key of another size"));
  TRY_ASSIGN(const SecretValue secret, authority.secret());
  SecretBytes bytes(sealing.begin(), sealing.end());
  bytes.insert(bytes.end(), secret.bytes().begin(), secret.bytes().end());
  return sys::memory_file("caisson-keys", {bytes.data(), bytes.size()});
}

Result<SandboxKeys> read_keys(int file_fd) {
  TRY_ASSIGN(std::string text, sys::read_again(file_fd, kMostKeys));
  const SecretValue bytes = SecretValue::take(text);
  if (bytes.bytes().size() < kSealingKey) return fail(Error::invalid("keys that are cut off"));
  SandboxKeys keys{.sealing = SecretValue(bytes.bytes().substr(0, kSealingKey)),
                   .authority = nullptr};
  TRY_ASSIGN(keys.authority, io::Authority::again(bytes.bytes().substr(kSealingKey)));
  return keys;
}

}  // namespace caisson::egress
