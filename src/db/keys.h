// API keys. A key is "e2b_" and 40 hexadecimal digits of 160 random bits. It is told once, to who
// makes it; the database has its SHA-256, which is enough to know it again and to nobody else of
// use: no salt or slow hash is wanted where the secret itself is random.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "db/database.h"

namespace caisson::db {

struct ApiKey {
  std::string id;  // a UUID
  std::string team_id;
  std::string name;  // what its owner calls it; may be empty
  std::string mask;  // "e2b_ab…12"
  std::int64_t created_ms = 0;
  std::optional<std::int64_t> last_used_ms;  // to about a minute
  std::optional<std::int64_t> revoked_ms;
  bool operator==(const ApiKey&) const = default;
};

struct NewApiKey {
  ApiKey key;
  std::string secret;  // the key itself
};

class Keys {
 public:
  explicit Keys(Database& database) : sqlite_(database.sqlite()) {}

  // Errors: invalid_argument (the name is too long or has control characters), failed_precondition
  // (no such team).
  Result<NewApiKey> create(std::string_view team_id, std::string_view name, std::int64_t now_ms);

  // The key that was given with a request. Whatever is wrong with it, the error is the same:
  // unauthenticated.
  Result<ApiKey> authenticate(std::string_view secret);
  // Notes that it was used, at most once a minute; for after the request.
  Status note_use(std::string_view key_id, std::int64_t now_ms);

  // Oldest first, those revoked included.
  Result<std::vector<ApiKey>> list(std::string_view team_id);
  // From now on it is as if it had never been; flushed to the disk before this returns. `key_id`
  // may be its first eight or more characters. Errors: not_found (also where it was revoked
  // before), invalid_argument (several keys begin so).
  Result<ApiKey> revoke(std::string_view team_id, std::string_view key_id, std::int64_t now_ms);

 private:
  Sqlite& sqlite_;
};

}  // namespace caisson::db
