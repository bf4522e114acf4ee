#include "api/database_secrets.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/encoding.h"
#include "base/secret.h"
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

io::Async<Result<SealedSecret>> DatabaseSecrets::seal(std::string team, std::string secret,
                                                      Fd body) {
  std::string id = "sec_" + random_id(kIdLength);
  if (!secret.empty()) {
    CO_TRY_ASSIGN(SecretView found, co_await find(std::move(team), std::move(secret)));
    id = std::move(found.id);
  }
  auto work = [vault = vault_, id, body = std::make_shared<const Fd>(std::move(body))] {
    return vault->keep(id, body->get());
  };
  CO_TRY_ASSIGN(vault::Kept kept, co_await loop_.in_pool(std::move(work)));
  co_return SealedSecret{
      .id = std::move(id), .sealed = std::move(kept.sealed), .rest = std::move(kept.rest)};
}

io::Async<Result<SecretView>> DatabaseSecrets::create(std::string team, std::string name,
                                                      Metadata metadata, SealedSecret value) {
  auto work = [team = std::move(team), name = lowered(std::move(name)),
               metadata = std::move(metadata),
               value = std::move(value)](db::Database& database) -> Result<db::SecretRow> {
    return db::Secrets(database).create(team, value.id, name, metadata, value.sealed, now_ms());
  };
  CO_TRY_ASSIGN(const db::SecretRow row, co_await database_->with(std::move(work)));
  co_return view_of(row);
}

io::Async<Result<SecretView>> DatabaseSecrets::update(std::string team,
                                                      std::optional<Metadata> metadata,
                                                      SealedSecret value) {
  auto work = [team, metadata = std::move(metadata),
               value = std::move(value)](db::Database& database) -> Result<db::SecretRow> {
    return db::Secrets(database).update(team, value.id, metadata, value.sealed, now_ms());
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

io::Async<Result<std::vector<vault::GivenSecret>>> kept_values(
    std::shared_ptr<fleet::SharedDatabase> database, std::string team,
    std::vector<std::string> names) {
  auto work = [team = std::move(team), names = std::move(names)](
                  db::Database& from) -> Result<std::vector<vault::GivenSecret>> {
    std::vector<vault::GivenSecret> values;
    for (const std::string& name : names) {
      // By its name alone: who uses it is found by that when it changes.
      if (!db::check_secret_name(name).has_value()) continue;
      const auto row = db::Secrets(from).find(team, name);
      if (!row.has_value() && row.error().code() == Code::kNotFound) continue;
      if (!row.has_value()) return fail(row.error());
      values.push_back({.name = name, .kept_id = row->id, .kept = row->sealed});
    }
    return values;
  };
  co_return co_await database->with(std::move(work));
}

}  // namespace caisson::api
