// API keys of the database, as the API asks for them.
#pragma once

#include <memory>
#include <string>

#include "api/auth.h"
#include "fleet/shared_database.h"

namespace caisson::api {

class DatabaseKeys final : public Keys {
 public:
  explicit DatabaseKeys(std::shared_ptr<fleet::SharedDatabase> database)
      : database_(std::move(database)) {}
  io::Async<Result<std::string>> team_of(std::string key) override;

 private:
  std::shared_ptr<fleet::SharedDatabase> database_;
};

}  // namespace caisson::api
