#include "db/keys.h"

#include "base/secret.h"
#include "base/sha256.h"
#include "db/text.h"

namespace caisson::db {
namespace {

constexpr std::string_view kPrefix = "e2b_";
constexpr std::size_t kDigits = 40;
constexpr std::int64_t kUseMs = 60'000;
constexpr std::size_t kLeastPrefix = 8;

constexpr SqlText kSelect =
    "SELECT id, team_id, name, mask, created_ms, last_used_ms, revoked_ms FROM api_keys";

ApiKey read_key(const Query& row) {
  return {.id = row.get<std::string>(0),
          .team_id = row.get<std::string>(1),
          .name = row.get<std::string>(2),
          .mask = row.get<std::string>(3),
          .created_ms = row.get<std::int64_t>(4),
          .last_used_ms = row.get<std::optional<std::int64_t>>(5),
          .revoked_ms = row.get<std::optional<std::int64_t>>(6)};
}

std::string hash_of(std::string_view secret) {
  Sha256 hash;
  hash.update(secret);
  return hash.finish_bytes();
}

std::string mask_of(std::string_view secret) {
  return std::string(secret.substr(0, kPrefix.size() + 2)) + "…" +
         std::string(secret.substr(secret.size() - 2));
}

bool is_key(std::string_view text) {
  if (text.size() != kPrefix.size() + kDigits || !text.starts_with(kPrefix)) return false;
  for (const char c : text.substr(kPrefix.size())) {
    if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return false;
  }
  return true;
}

Error not_valid() {
  return {Code::kUnauthenticated, "the API key is not valid"};
}

}  // namespace

Result<NewApiKey> Keys::create(std::string_view team_id, std::string_view name,
                               std::int64_t now_ms) {
  TRY(check_label("name", name));
  std::string secret(kPrefix);
  secret += random_hex(kDigits);
  ApiKey key = {.id = random_uuid(),
                .team_id = std::string(team_id),
                .name = std::string(name),
                .mask = mask_of(secret),
                .created_ms = now_ms};
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_, Durability::kAtOnce));
  const auto made = sqlite_.run(
      "INSERT INTO api_keys (id, team_id, name, hash, mask, created_ms) VALUES (?, ?, ?, ?, ?, ?)",
      key.id, key.team_id, key.name, Blob{hash_of(secret)}, key.mask, key.created_ms);
  if (!made.has_value()) {
    if (made.error().code() != Code::kFailedPrecondition) return fail(made.error());
    return fail(Error::precondition("no team " + quoted(team_id)));
  }
  TRY(transaction.commit());
  return NewApiKey{.key = std::move(key), .secret = std::move(secret)};
}

Result<ApiKey> Keys::authenticate(std::string_view secret) {
  if (!is_key(secret)) return fail(not_valid());
  // The index finds a row by a hash that nobody can choose; whether it is that row's is then
  // compared in a time that says nothing.
  const std::string hash = hash_of(secret);
  TRY_ASSIGN(Query query,
             sqlite_.query("SELECT id, team_id, name, mask, created_ms, last_used_ms, revoked_ms, "
                           "hash FROM api_keys WHERE hash = ?",
                           Blob{hash}));
  TRY_ASSIGN(const bool found, query.next());
  if (!found || !same_secret(query.get<std::string>(7), hash)) return fail(not_valid());
  ApiKey key = read_key(query);
  if (key.revoked_ms.has_value()) return fail(not_valid());
  return key;
}

Status Keys::note_use(std::string_view key_id, std::int64_t now_ms) {
  {
    // A look takes no lock; an update takes the writer's, also where it changes nothing.
    TRY_ASSIGN(Query query,
               sqlite_.query("SELECT 1 FROM api_keys WHERE id = ? AND last_used_ms > ?", key_id,
                             now_ms - kUseMs));
    TRY_ASSIGN(const bool noted, query.next());
    if (noted) return {};
  }
  TRY(sqlite_.run("UPDATE api_keys SET last_used_ms = ? WHERE id = ?", now_ms, key_id));
  return {};
}

Result<std::vector<ApiKey>> Keys::list(std::string_view team_id) {
  static constexpr auto kList = kSelect + " WHERE team_id = ? ORDER BY created_ms, id";
  TRY_ASSIGN(Query query, sqlite_.query(kList, team_id));
  std::vector<ApiKey> keys;
  for (;;) {
    TRY_ASSIGN(const bool more, query.next());
    if (!more) return keys;
    keys.push_back(read_key(query));
  }
}

Result<ApiKey> Keys::revoke(std::string_view team_id, std::string_view key_id,
                            std::int64_t now_ms) {
  static constexpr auto kFind =
      kSelect +
      " WHERE team_id = ?1 AND revoked_ms IS NULL AND substr(id, 1, length(?2)) = ?2 LIMIT 2";
  if (key_id.size() < kLeastPrefix) {
    return fail(Error::invalid("key: found " + quoted(key_id) +
                               "; allowed is a key's id, or its first 8 or more characters"));
  }
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_, Durability::kAtOnce));
  ApiKey key;
  {
    TRY_ASSIGN(Query query, sqlite_.query(kFind, team_id, key_id));
    TRY_ASSIGN(const bool found, query.next());
    if (!found) return fail(Error::not_found("no key " + quoted(key_id) + " in this team"));
    key = read_key(query);
    TRY_ASSIGN(const bool another, query.next());
    if (another) {
      return fail(Error::invalid("key: several begin with " + quoted(key_id) +
                                 "; allowed is the id of one"));
    }
  }
  key.revoked_ms = now_ms;
  TRY(sqlite_.run("UPDATE api_keys SET revoked_ms = ? WHERE id = ?", now_ms, key.id));
  TRY(transaction.commit());
  return key;
}

}  // namespace caisson::db
