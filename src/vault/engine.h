// What the vault does, in whatever process it is: caisson-vault's, or a test's.
//
// Everything is sealed under keys that follow from one. A sandbox that uses secrets, or whose TLS
// is inspected, gets keys (egress/gateway/keys.h), whose sealing key follows from that one and a
// number, so that a vault that has been started again can still tell the gateway of a sandbox
// something. Immutable.
#pragma once

#include "base/secret.h"
#include "vault/vault.h"

namespace caisson::vault {

// Of any length. `earlier`: what secrets were sealed under before the vault had a key of its own
// (key_file.h); empty where they never were. What is sealed under it is read, and nothing new is.
struct MasterKeys {
  SecretValue key, earlier;
};

class Engine final : public Vault {
 public:
  explicit Engine(MasterKeys keys) : keys_(std::move(keys)) {}
  explicit Engine(std::string_view key)
      : Engine(MasterKeys{.key = SecretValue(key), .earlier = {}}) {}

  Result<Sealed> seal(const policy::NetworkPolicy& policy, std::span<const GivenSecret> values,
                      std::string_view before) const override;
  Result<Kept> keep(std::string_view id, int body_fd) const override;
  Result<NetworkKeys> make_keys() const override;
  Result<std::string> seal_for_gateway(std::string_view number,
                                       std::string_view sealed) const override;

 private:
  Result<std::vector<egress::SecretEntry>> unseal(std::string_view purpose,
                                                  std::string_view sealed) const;
  // Of the secrets that a team keeps: `sealed` is the secret `id`'s alone.
  Result<egress::SharedSecret> open_kept(std::string_view id, std::string_view sealed) const;
  Result<egress::SharedSecret> value_of(const policy::SecretRule& rule,
                                        std::span<const GivenSecret> values,
                                        const egress::SecretEntry* before) const;
  Result<egress::SecretEntry> sealed_entry(const policy::SecretRule& rule,
                                           std::span<const GivenSecret> values,
                                           const egress::SecretEntry* before) const;
  MasterKeys keys_;
};

}  // namespace caisson::vault
