// The secrets of a server's sandboxes: sealed in its records, sealed again for each sandbox's
// gateway, and open nowhere else.
//
// Behind this interface is a process of its own (client.h), which alone has the key and every
// value; tests have its engine within theirs. No call gives a value back. All of them block, some
// tenths of a millisecond as a rule and at most kPatience, so they belong on a pool's thread; any
// thread, several at a time. Error of all: unavailable, where the process has died or does not
// answer; it is started again.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <caisson/network.h>

#include "base/error.h"
#include "base/fd.h"
#include "egress/secrets/secret_rules.h"

namespace caisson::vault {

inline constexpr std::chrono::seconds kPatience{10};

// A value that a policy names by {vault: NAME}: what came with the request that makes the sandbox,
// or what was sealed for the team (Vault::keep()). Neither: nobody keeps it any more, and what is
// asked with it is to be refused.
struct GivenSecret {
  std::string name;
  egress::SharedSecret value = nullptr;
  std::string kept_id = {}, kept = {};
};

// A sandbox's secrets for its record, and its variables, whose values are placeholders.
struct Sealed {
  std::string text;
  std::map<std::string, std::string> variables;
};

// A request's body whose value was taken out.
struct Kept {
  std::string sealed;
  std::string rest;  // the JSON object, with an empty "value"
};

// Of one sandbox. The file is shared with whoever has it made; a server cannot read it
// (egress/keys_file.h).
struct NetworkKeys {
  std::string number;  // by which the vault finds the sealing key again; no secret
  std::shared_ptr<const Fd> file;
  std::string certificate;  // PEM: whom the sandbox is to trust
};

class Vault {
 public:
  virtual ~Vault() = default;

  // The policy's secrets: their values are among `values`, else those of `before`, which is empty
  // or what was sealed for the same sandbox, or the one that it is made like. What stood for one
  // there stands for it again. Empty where the policy has none. Errors: invalid_argument (a value
  // that is missing or not allowed, with the secret's name; `before` or a kept value is not the
  // vault's; all of it is too long).
  virtual Result<Sealed> seal(const policy::NetworkPolicy& policy,
                              std::span<const GivenSecret> values,
                              std::string_view before) const = 0;

  // The value in a request's body, for the secret `id` alone. `body_fd`: a pipe that has all of it
  // and whose other end is closed; borrowed. Error: invalid_argument (no JSON object, no "value",
  // not one that a secret may have), out_of_range (kMostSecretBody).
  virtual Result<Kept> keep(std::string_view id, int body_fd) const = 0;

  virtual Result<NetworkKeys> make_keys() const = 0;

  // What the gateway of a sandbox with these keys is told: Recipe::network, with the secrets.
  Result<std::string> text_for(std::string_view number, std::string network,
                               std::string_view sealed) const;

 protected:
  // The record's secrets, sealed for the gateway.
  virtual Result<std::string> seal_for_gateway(std::string_view number,
                                               std::string_view sealed) const = 0;
};

}  // namespace caisson::vault
