// The secrets that teams keep with a server: names, and values that were sealed by whoever has the
// key. A name is a team's own; each function knows one team's rows alone, another's are not_found.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "db/database.h"

namespace caisson::db {

// More are refused.
inline constexpr std::uint64_t kMostSecretsOfTeam = 1000;

struct SecretRow {
  std::string id;  // "sec_" and 20 of [a-z0-9]
  std::string team_id;
  std::string name;          // check_secret_name()
  std::int64_t version = 1;  // of the value; the one before is gone
  std::map<std::string, std::string> metadata;
  std::string sealed;  // opaque
  std::int64_t created_ms = 0, updated_ms = 0;
  bool operator==(const SecretRow&) const = default;
};

struct SecretPage {
  std::vector<SecretRow> rows;  // by name
  bool more = false;
};

// 1 to 64 of [a-z0-9-_.], the first a letter or a digit; never a secret's id. Error:
// invalid_argument.
Status check_secret_name(std::string_view name);
// 32 entries, keys of 128 bytes and values of 1024, UTF-8, 8192 bytes in all. Error:
// invalid_argument.
Status check_secret_metadata(const std::map<std::string, std::string>& metadata);

class Secrets {
 public:
  explicit Secrets(Database& database) : sqlite_(database.sqlite()) {}

  // Errors: those of the checks; already_exists; resource_exhausted (kMostSecretsOfTeam);
  // failed_precondition (no such team).
  Result<SecretRow> create(std::string_view team_id, std::string_view id, std::string_view name,
                           const std::map<std::string, std::string>& metadata,
                           std::string_view sealed, std::int64_t now_ms);
  // A value of the next version. `metadata`: nullopt, as it is. By id or name. Errors: not_found,
  // those of the check.
  Result<SecretRow> update(std::string_view team_id, std::string_view secret,
                           const std::optional<std::map<std::string, std::string>>& metadata,
                           std::string_view sealed, std::int64_t now_ms);
  // By id or name. Error: not_found.
  Result<SecretRow> find(std::string_view team_id, std::string_view secret);
  // Those behind the name `after`.
  Result<SecretPage> list(std::string_view team_id, std::string_view after, std::uint32_t limit);
  // By id or name; what it was. Error: not_found.
  Result<SecretRow> remove(std::string_view team_id, std::string_view secret);

 private:
  Sqlite& sqlite_;
};

}  // namespace caisson::db
