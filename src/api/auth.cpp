#include "api/auth.h"

#include <algorithm>

#include "base/sha256.h"

namespace caisson::api {
namespace {

constexpr std::size_t kMostKey = 256;

Error refused(std::string_view why) {
  return {Code::kUnauthenticated, std::string(why)};
}

// The token of "Bearer TOKEN"; the scheme knows no case.
std::optional<std::string_view> bearer(std::string_view value) {
  constexpr std::string_view kScheme = "bearer ";
  if (value.size() <= kScheme.size()) return std::nullopt;
  const bool same =
      std::ranges::equal(value.substr(0, kScheme.size()), kScheme, [](char a, char b) {
        return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
      });
  return same ? std::optional(value.substr(kScheme.size())) : std::nullopt;
}

}  // namespace

Result<std::string> api_key_of(const http::Headers& headers) {
  std::optional<std::string_view> key = headers.get("X-API-KEY");
  if (!key.has_value()) {
    if (const auto value = headers.get("Authorization")) key = bearer(*value);
  }
  if (!key.has_value() || key->empty()) {
    return fail(refused("the request has no API key; send it in the header X-API-KEY"));
  }
  if (key->size() > kMostKey) return fail(refused("the API key is not known or was revoked"));
  return std::string(*key);
}

io::Async<Result<std::string>> CachedKeys::team_of(std::string key) {
  Sha256 hash;
  hash.update(key);
  const std::string digest = hash.finish();
  const auto found = entries_.find(digest);
  if (found != entries_.end() && now_() < found->second.until) co_return found->second.team;
  CO_TRY_ASSIGN(std::string team, co_await behind_.team_of(std::move(key)));
  const io::Clock::time_point now = now_();
  if (entries_.size() >= kMost) {
    std::erase_if(entries_, [&](const auto& entry) { return entry.second.until <= now; });
    if (entries_.size() >= kMost) entries_.clear();
  }
  entries_[digest] = {team, now + kGood};
  co_return team;
}

}  // namespace caisson::api
