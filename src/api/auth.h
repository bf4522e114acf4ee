// Who a request to the control plane is from: its API key, and the team that the key belongs to.
//
// Keys are kept and looked up by their SHA-256 alone, so how long a look-up takes says nothing
// about any key. Belongs to the loop.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/error.h"
#include "http/message.h"
#include "io/async.h"
#include "io/loop.h"

namespace caisson::api {

// The key of a request: X-API-KEY, or a Bearer token. Error: unauthenticated where there is none.
Result<std::string> api_key_of(const http::Headers& headers);

class Keys {
 public:
  virtual ~Keys() = default;
  // The id of the key's team. Error: unauthenticated, the same for every key that is not good.
  virtual io::Async<Result<std::string>> team_of(std::string key) = 0;
};

// Remembers good keys for a few seconds, so that requests do not wait for the database. A key that
// is revoked is good for so long still. Keys that are not good are not remembered: nobody fills
// memory with them.
class CachedKeys final : public Keys {
 public:
  using Now = io::Clock::time_point (*)();
  // `behind` outlives it.
  explicit CachedKeys(Keys& behind, Now now = io::Clock::now) : behind_(behind), now_(now) {}

  io::Async<Result<std::string>> team_of(std::string key) override;

  static constexpr std::chrono::seconds kGood{5};
  static constexpr std::size_t kMost = 4096;

 private:
  struct Entry {
    std::string team;
    io::Clock::time_point until;
  };
  Keys& behind_;
  Now now_;
  std::unordered_map<std::string, Entry> entries_;  // by the key's SHA-256
};

}  // namespace caisson::api
