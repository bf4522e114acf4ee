// Secrets of the database, sealed by the vault: whoever reads the database has none of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/secrets.h"
#include "fleet/fleet.h"
#include "fleet/shared_database.h"
#include "fleet/vault.h"

namespace caisson::api {

class DatabaseSecrets final : public Secrets {
 public:
  // The fleet is told of what has changed; it outlives this.
  DatabaseSecrets(std::shared_ptr<fleet::SharedDatabase> database,
                  std::shared_ptr<const fleet::Vault> vault, fleet::Fleet& fleet)
      : database_(std::move(database)), vault_(std::move(vault)), fleet_(fleet) {}

  io::Async<Result<SecretView>> create(std::string team, std::string name, Metadata metadata,
                                       SecretValue value) override;
  io::Async<Result<SecretView>> update(std::string team, std::string secret,
                                       std::optional<Metadata> metadata,
                                       SecretValue value) override;
  io::Async<Result<SecretView>> find(std::string team, std::string secret) override;
  io::Async<Result<SecretViews>> list(std::string team, std::size_t limit,
                                      std::string after) override;
  io::Async<Status> remove(std::string team, std::string secret) override;

 private:
  std::shared_ptr<fleet::SharedDatabase> database_;
  std::shared_ptr<const fleet::Vault> vault_;
  fleet::Fleet& fleet_;
};

// Those of `names` that the team keeps, opened. Error: one cannot be opened, or the database's.
io::Async<Result<std::vector<fleet::GivenSecret>>> kept_values(
    std::shared_ptr<fleet::SharedDatabase> database, std::shared_ptr<const fleet::Vault> vault,
    std::string team, std::vector<std::string> names);

}  // namespace caisson::api
