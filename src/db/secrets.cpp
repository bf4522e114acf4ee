#include "db/secrets.h"

#include <algorithm>

#include "base/encoding.h"
#include "base/json.h"
#include "db/text.h"

namespace caisson::db {
namespace {

using Metadata = std::map<std::string, std::string>;

constexpr std::string_view kIdPrefix = "sec_";
constexpr std::size_t kMostName = 64;
constexpr std::size_t kMostEntries = 32, kMostKey = 128, kMostValue = 1024, kMostMetadata = 8192;

constexpr SqlText kSelect =
    "SELECT id, team_id, name, version, metadata, sealed, created_ms, updated_ms FROM secrets";

bool is_small(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

std::string json_of(const Metadata& metadata) {
  json::Value value = json::Value::object();
  for (const auto& [key, text] : metadata) value.set(key, text);
  return json::serialize(value);
}

SecretRow read_row(const Query& query) {
  SecretRow row{.id = query.get<std::string>(0),
                .team_id = query.get<std::string>(1),
                .name = query.get<std::string>(2),
                .version = query.get<std::int64_t>(3),
                .metadata = {},
                .sealed = query.get<std::string>(5),
                .created_ms = query.get<std::int64_t>(6),
                .updated_ms = query.get<std::int64_t>(7)};
  const auto metadata = json::parse(query.get<std::string>(4));
  if (!metadata.has_value() || metadata->as_object() == nullptr) return row;
  for (const json::Member& member : *metadata->as_object()) {
    if (const std::string* text = member.value.as_string()) row.metadata.emplace(member.key, *text);
  }
  return row;
}

Error none(std::string_view secret) {
  return Error::not_found("secret " + quoted(secret) + " not found");
}

}  // namespace

Status check_secret_name(std::string_view name) {
  const bool good = !name.empty() && name.size() <= kMostName && is_small(name[0]) &&
                    !name.starts_with(kIdPrefix) && std::ranges::all_of(name, [](char c) {
                      return is_small(c) || c == '-' || c == '_' || c == '.';
                    });
  if (good) return {};
  return fail(Error::invalid("name: found " + quoted(name) +
                             "; allowed are 1 to 64 small letters, digits, '-', '_' and '.', the "
                             "first of them a letter or a digit, and not beginning with sec_"));
}

Status check_secret_metadata(const Metadata& metadata) {
  const auto wrong = [](const std::string& found) {
    return fail(Error::invalid("metadata: found " + found +
                               "; allowed are 32 entries of UTF-8, keys of 128 bytes and values of "
                               "1024, 8192 bytes in all"));
  };
  if (metadata.size() > kMostEntries) return wrong(std::to_string(metadata.size()) + " entries");
  std::size_t bytes = 0;
  for (const auto& [key, value] : metadata) {
    bytes += key.size() + value.size();
    if (key.size() > kMostKey || value.size() > kMostValue || !is_utf8(key) || !is_utf8(value) ||
        key.contains('\0') || value.contains('\0'))
      return wrong("the entry " + quoted(key));
  }
  if (bytes > kMostMetadata) return wrong(std::to_string(bytes) + " bytes");
  return {};
}

Result<SecretRow> Secrets::create(std::string_view team_id, std::string_view id,
                                  std::string_view name, const Metadata& metadata,
                                  std::string_view sealed, std::int64_t now_ms) {
  TRY(check_secret_name(name));
  TRY(check_secret_metadata(metadata));
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_, Durability::kAtOnce));
  {
    TRY_ASSIGN(Query query, sqlite_.query("SELECT count(*), count(CASE WHEN name = ?2 THEN 1 END) "
                                          "FROM secrets WHERE team_id = ?1",
                                          team_id, name));
    TRY(query.next());
    if (query.get<std::int64_t>(1) != 0)
      return fail(Error(Code::kAlreadyExists, "there is a secret " + quoted(name)));
    if (query.get<std::uint64_t>(0) >= kMostSecretsOfTeam)
      return fail(Error::exhausted("the team has " + std::to_string(kMostSecretsOfTeam) +
                                   " secrets, which is as many as it may"));
  }
  const auto made = sqlite_.run(
      "INSERT INTO secrets (id, team_id, name, version, metadata, sealed, created_ms, updated_ms) "
      "VALUES (?, ?, ?, 1, ?, ?, ?, ?)",
      id, team_id, name, json_of(metadata), sealed, now_ms, now_ms);
  if (!made.has_value()) {
    if (made.error().code() != Code::kFailedPrecondition) return fail(made.error());
    return fail(Error::precondition("no team " + quoted(team_id)));
  }
  TRY(transaction.commit());
  return find(team_id, id);
}

Result<SecretRow> Secrets::update(std::string_view team_id, std::string_view secret,
                                  const std::optional<Metadata>& metadata, std::string_view sealed,
                                  std::int64_t now_ms) {
  if (metadata.has_value()) TRY(check_secret_metadata(*metadata));
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_, Durability::kAtOnce));
  TRY_ASSIGN(const SecretRow before, find(team_id, secret));
  TRY(
      sqlite_.run("UPDATE secrets SET version = version + 1, metadata = ?, sealed = ?, "
                  "updated_ms = ? WHERE id = ?",
                  json_of(metadata.value_or(before.metadata)), sealed, now_ms, before.id));
  TRY_ASSIGN(SecretRow after, find(team_id, before.id));
  TRY(transaction.commit());
  return after;
}

Result<SecretRow> Secrets::find(std::string_view team_id, std::string_view secret) {
  static constexpr auto kFind = kSelect + " WHERE team_id = ?1 AND (id = ?2 OR name = ?2)";
  TRY_ASSIGN(Query query, sqlite_.query(kFind, team_id, secret));
  TRY_ASSIGN(const bool found, query.next());
  if (!found) return fail(none(secret));
  return read_row(query);
}

Result<SecretPage> Secrets::list(std::string_view team_id, std::string_view after,
                                 std::uint32_t limit) {
  static constexpr auto kList = kSelect + " WHERE team_id = ? AND name > ? ORDER BY name LIMIT ?";
  TRY_ASSIGN(Query query, sqlite_.query(kList, team_id, after, std::int64_t{limit} + 1));
  SecretPage page;
  for (;;) {
    TRY_ASSIGN(const bool found, query.next());
    if (!found) return page;
    if (page.rows.size() == limit) {
      page.more = true;
      return page;
    }
    page.rows.push_back(read_row(query));
  }
}

Result<SecretRow> Secrets::remove(std::string_view team_id, std::string_view secret) {
  TRY_ASSIGN(Transaction transaction, Transaction::begin(sqlite_, Durability::kAtOnce));
  TRY_ASSIGN(SecretRow row, find(team_id, secret));
  TRY(sqlite_.run("DELETE FROM secrets WHERE id = ?", row.id));
  TRY(transaction.commit());
  return row;
}

}  // namespace caisson::db
