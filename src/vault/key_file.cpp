#include "vault/key_file.h"

#include <sys/stat.h>

#include <utility>

#include "db/database.h"
#include "db/private_file.h"
#include "db/secret_file.h"
#include "db/server_secret.h"

namespace caisson::vault {
namespace {

constexpr const char* kKey = "key";
constexpr const char* kEarlier = "earlier";
constexpr std::size_t kEarlierBytes = 64;

// From the secret of a server that was here before.
Status keep_earlier(int folder_fd, const std::string& server_directory) {
  struct stat facts{};
  if (::lstat((server_directory + "/secret").c_str(), &facts) != 0) return {};
  TRY_ASSIGN(const db::ServerSecret secret, db::ServerSecret::open(server_directory));
  return db::make_secret_file(folder_fd, kEarlier,
                              secret.token(db::TokenPurpose::kEarlierVault, ""));
}

}  // namespace

Result<Fd> prepare_keys(const std::string& state_directory) {
  const std::string folder = state_directory + "/vault";
  TRY_ASSIGN(Fd directory, db::open_private_directory(folder));
  const auto wrong = [&](Error error) { return fail(std::move(error).with(folder + "/" + kKey)); };
  auto key = db::read_secret_file(directory.get(), kKey, db::kSecretFileBytes);
  if (key.has_value()) return directory;
  if (key.error().code() != Code::kNotFound) return wrong(std::move(key).error());
  // First: what is interrupted is done again.
  TRY(keep_earlier(directory.get(), db::server_directory(state_directory)));
  key = db::open_secret_file(directory.get(), kKey);
  if (!key.has_value()) return wrong(std::move(key).error());
  return directory;
}

Result<MasterKeys> read_keys(int folder_fd) {
  MasterKeys keys;
  auto key = db::read_secret_file(folder_fd, kKey, db::kSecretFileBytes);
  if (!key.has_value()) return fail(std::move(key).error().with("the vault's key"));
  keys.key = std::move(*key);
  auto earlier = db::read_secret_file(folder_fd, kEarlier, kEarlierBytes);
  if (!earlier.has_value() && earlier.error().code() != Code::kNotFound)
    return fail(std::move(earlier).error().with("the vault's earlier key"));
  if (earlier.has_value()) keys.earlier = std::move(*earlier);
  return keys;
}

}  // namespace caisson::vault
