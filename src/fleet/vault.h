// Secrets of served sandboxes, as far as a server has them: sealed in its records, sealed again for
// each sandbox's gateway, and open nowhere.
//
// What a client gives is sealed under the server's own key at once. A sandbox that uses secrets, or
// whose TLS is inspected, gets keys (egress/gateway/keys.h), whose sealing key follows from the
// server's and a number, so that a server that has been started again can still tell the gateway of
// a sandbox something. Immutable, any thread; calls take some tenths of a millisecond.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <caisson/network.h>

#include "base/error.h"
#include "base/fd.h"
#include "base/secret.h"
#include "egress/secrets/secret_rules.h"

namespace caisson::fleet {

// A value that a policy names by {vault: NAME}. Null: nobody keeps it any more, and what is asked
// with it is to be refused.
struct GivenSecret {
  std::string name;
  egress::SharedSecret value;
};

// Of one sandbox. The file is shared with whoever has it made.
struct NetworkKeys {
  std::string number;  // by which the vault finds the sealing key again; no secret
  std::shared_ptr<const Fd> file;
  std::string certificate;  // PEM: whom the sandbox is to trust
};

class Vault {
 public:
  // `key`: the server's, of any length.
  explicit Vault(std::string_view key);

  // The policy's secrets for a record: their values are among `values`, else those of `before`,
  // which is empty or what was sealed for the same sandbox, or the one that it is made like. What
  // stood for one there stands for it again. Empty where the policy has none. Errors:
  // invalid_argument (a value that is missing or not allowed, with the secret's name; `before` is
  // not the vault's).
  Result<std::string> seal(const policy::NetworkPolicy& policy, std::span<const GivenSecret> values,
                           std::string_view before) const;
  // Variables, and the placeholders that are their values. Error: that of seal().
  Result<std::map<std::string, std::string>> placeholders(std::string_view sealed) const;

  // A value that a team keeps with the server; `id` is the secret's, for which alone it is opened
  // again. Errors: invalid_argument (not a value that a secret may have; not sealed so).
  Result<std::string> seal_value(std::string_view id, std::string_view value) const;
  Result<egress::SharedSecret> open_value(std::string_view id, std::string_view sealed) const;

  Result<NetworkKeys> make_keys() const;
  // What the gateway of a sandbox with these keys is told: Recipe::network, with the secrets.
  Result<std::string> text_for(std::string_view number, std::string network,
                               std::string_view sealed) const;

 private:
  SecretValue derive(std::string_view purpose) const;
  SecretValue key_;
};

}  // namespace caisson::fleet
