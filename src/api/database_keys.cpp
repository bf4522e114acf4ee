#include "api/database_keys.h"

#include <chrono>
#include <utility>

#include "db/keys.h"

namespace caisson::api {

io::Async<Result<std::string>> DatabaseKeys::team_of(std::string key) {
  auto work = [secret = std::move(key)](db::Database& database) -> Result<std::string> {
    db::Keys keys(database);
    TRY_ASSIGN(const db::ApiKey found, keys.authenticate(secret));
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    // Only for people to see; it keeps nobody out.
    static_cast<void>(keys.note_use(
        found.id, std::chrono::duration_cast<std::chrono::milliseconds>(now).count()));
    return found.team_id;
  };
  co_return co_await database_->with(std::move(work));
}

}  // namespace caisson::api
