// Secrets of the database, sealed by the vault: whoever reads the database has none of them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "api/secrets.h"
#include "fleet/fleet.h"
#include "fleet/shared_database.h"
#include "vault/vault.h"

namespace caisson::api {

class DatabaseSecrets final : public Secrets {
 public:
  // The fleet is told of what has changed; it outlives this.
  DatabaseSecrets(io::Loop& loop, std::shared_ptr<fleet::SharedDatabase> database,
                  std::shared_ptr<const vault::Vault> vault, fleet::Fleet& fleet)
      : loop_(loop), database_(std::move(database)), vault_(std::move(vault)), fleet_(fleet) {}

  io::Async<Result<SealedSecret>> seal(std::string team, std::string secret, Fd body) override;
  io::Async<Result<SecretView>> create(std::string team, std::string name, Metadata metadata,
                                       SealedSecret value) override;
  io::Async<Result<SecretView>> update(std::string team, std::optional<Metadata> metadata,
                                       SealedSecret value) override;
  io::Async<Result<SecretView>> find(std::string team, std::string secret) override;
  io::Async<Result<SecretViews>> list(std::string team, std::size_t limit,
                                      std::string after) override;
  io::Async<Status> remove(std::string team, std::string secret) override;

 private:
  io::Loop& loop_;
  std::shared_ptr<fleet::SharedDatabase> database_;
  std::shared_ptr<const vault::Vault> vault_;
  fleet::Fleet& fleet_;
};

// Those of `names` that the team keeps, as they were sealed. Error: the database's.
io::Async<Result<std::vector<vault::GivenSecret>>> kept_values(
    std::shared_ptr<fleet::SharedDatabase> database, std::string team,
    std::vector<std::string> names);

}  // namespace caisson::api
