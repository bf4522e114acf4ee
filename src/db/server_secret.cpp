#include "db/server_secret.h"

#include "base/encoding.h"
#include "base/secret.h"
#include "base/sha256.h"
#include "db/private_file.h"
#include "db/secret_file.h"

namespace caisson::db {
namespace {

constexpr const char* kName = "secret";

std::string_view name_of(TokenPurpose purpose) {
  switch (purpose) {
    case TokenPurpose::kEnvdAccess:
      return "envd-access";
    case TokenPurpose::kTraffic:
      return "traffic";
    case TokenPurpose::kUpload:
      return "upload";
    case TokenPurpose::kEarlierVault:
      return "vault";
  }
  return "";
}

}  // namespace

Result<ServerSecret> ServerSecret::open(const std::string& directory) {
  TRY_ASSIGN(const Fd folder, open_private_directory(directory));
  auto secret = open_secret_file(folder.get(), kName);
  if (!secret.has_value()) {
    return fail(std::move(secret).error().with(directory + "/" + kName));
  }
  return ServerSecret(std::string(secret->bytes()));
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
