// The server's secret: 32 random bytes in a file of their own, from which the access tokens of
// sandboxes are derived. So nothing that opens a sandbox lies in the database, and a server that
// has been started again hands out the same tokens. Without the file the tokens of all sandboxes
// change. Immutable, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::db {

enum class TokenPurpose : std::uint8_t {
  kEnvdAccess,    // to files and commands of a sandbox
  kTraffic,       // to its ports
  kUpload,        // of a template's files; its place and time stand where the sandbox's id does
  kEarlierVault,  // what secrets were sealed with before the vault had a key; no sandbox's
};

class ServerSecret {
 public:
  // Reads DIRECTORY/secret; makes it (0600) where it is not there, on the disk before this returns.
  // Errors: failed_precondition (others may read it, or it is not 32 bytes long).
  static Result<ServerSecret> open(const std::string& directory);

  // 64 hexadecimal digits: the same for the same sandbox and purpose, and for no other.
  std::string token(TokenPurpose purpose, std::string_view sandbox_id) const;
  // Compares in constant time.
  bool matches(TokenPurpose purpose, std::string_view sandbox_id, std::string_view token) const;

 private:
  explicit ServerSecret(std::string secret) : secret_(std::move(secret)) {}
  std::string secret_;
};

}  // namespace caisson::db
