#include "api/database_secrets.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/encoding.h"
#include "db/secrets.h"
#include "policy/complain.h"

namespace caisson::api {
namespace {

constexpr std::size_t kLongestToken = 200;
constexpr std::size_t kIdLength = 20;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

SecretView view_of(const db::SecretRow& row) {
  return {.id = row.id,
          .name = row.name,
          .version = row.version,
          .metadata = row.metadata,
          .created_ms = row.created_ms,
          .updated_ms = row.updated_ms};
}

std::string lowered(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

}  // namespace

io::Async<Result<SecretView>> DatabaseSecrets::create(std::string team, std::string name,
                                                      Metadata metadata, SecretValue value) {
  const std::string id = "sec_" + random_id(kIdLength);
  auto sealed = vault_->seal_value(id, value.bytes());
  if (!sealed.has_value()) co_return fail(std::move(sealed).error().with("value"));
  auto work = [=, team = std::move(team), name = lowered(std::move(name)),
               metadata = std::move(metadata),
               sealed = std::move(*sealed)](db::Database& database) -> Result<db::SecretRow> {
    return db::Secrets(database).create(team, id, name, metadata, sealed, now_ms());
  };
  CO_TRY_ASSIGN(const db::SecretRow row, co_await database_->with(std::move(work)));
  co_return view_of(row);
}

io::Async<Result<SecretView>> DatabaseSecrets::update(std::string team, std::string secret,
                                                      std::optional<Metadata> metadata,
                                                      SecretValue value) {
  // Sealed for the id, which may have to be found by the name first.
  auto shared = std::make_shared<const SecretValue>(std::move(value));
  auto work = [team, secret = lowered(std::move(secret)), metadata = std::move(metadata),
               vault = vault_, shared](db::Database& database) -> Result<db::SecretRow> {
    db::Secrets secrets(database);
    TRY_ASSIGN(const db::SecretRow before, secrets.find(team, secret));
    auto sealed = vault->seal_value(before.id, shared->bytes());
    if (!sealed.has_value()) return fail(std::move(sealed).error().with("value"));
    return secrets.update(team, before.id, metadata, *sealed, now_ms());
  };
  CO_TRY_ASSIGN(const db::SecretRow row, co_await database_->with(std::move(work)));
  CO_TRY(co_await fleet_.renew_secret(std::move(team), row.name));
  co_return view_of(row);
}

io::Async<Result<SecretView>> DatabaseSecrets::find(std::string team, std::string secret) {
  auto work = [team = std::move(team), secret = lowered(std::move(secret))](
                  db::Database& database) { return db::Secrets(database).find(team, secret); };
  CO_TRY_ASSIGN(const db::SecretRow row, co_await database_->with(std::move(work)));
  co_return view_of(row);
}

io::Async<Result<SecretViews>> DatabaseSecrets::list(std::string team, std::size_t limit,
                                                     std::string after) {
  auto name = after.size() > kLongestToken ? std::nullopt : base64url_decode(after);
  if (!name.has_value())
    co_return fail(policy::wrong("nextToken", policy::quote(after), "the X-Next-Token of a page"));
  auto work = [team = std::move(team), limit, name = std::move(*name)](db::Database& database) {
    return db::Secrets(database).list(team, name, static_cast<std::uint32_t>(limit));
  };
  CO_TRY_ASSIGN(const db::SecretPage page, co_await database_->with(std::move(work)));
  SecretViews views;
  for (const db::SecretRow& row : page.rows) views.secrets.push_back(view_of(row));
  if (page.more) views.next_token = base64url_encode(page.rows.back().name);
  co_return views;
}

io::Async<Status> DatabaseSecrets::remove(std::string team, std::string secret) {
  auto work = [team, secret = lowered(std::move(secret))](db::Database& database) {
    return db::Secrets(database).remove(team, secret);
  };
  CO_TRY_ASSIGN(const db::SecretRow row, co_await database_->with(std::move(work)));
  CO_TRY(co_await fleet_.renew_secret(std::move(team), row.name));
  co_return Status();
}

io::Async<Result<std::vector<fleet::GivenSecret>>> kept_values(
    std::shared_ptr<fleet::SharedDatabase> database, std::shared_ptr<const fleet::Vault> vault,
    std::string team, std::vector<std::string> names) {
  auto work = [team = std::move(team), names = std::move(names),
               vault](db::Database& from) -> Result<std::vector<fleet::GivenSecret>> {
    std::vector<fleet::GivenSecret> values;
    for (const std::string& name : names) {
      // By its name alone: who uses it is found by that when it changes.
      if (!db::check_secret_name(name).has_value()) continue;
      const auto row = db::Secrets(from).find(team, name);
      if (!row.has_value() && row.error().code() == Code::kNotFound) continue;
      if (!row.has_value()) return fail(row.error());
      TRY_ASSIGN(auto value, vault->open_value(row->id, row->sealed));
      values.push_back({.name = name, .value = std::move(value)});
    }
    return values;
  };
  co_return co_await database->with(std::move(work));
}

}  // namespace caisson::api
