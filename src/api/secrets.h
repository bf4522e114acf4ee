// What the APIs know of the secrets that teams keep here: all but their values, which go from a
// client's request to the vault without being read (secret_body.h).
//
// An interface, so that handlers are tested without a database. Belongs to the loop.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "io/async.h"

namespace caisson::api {

struct SecretView {
  std::string id;
  std::string name;
  std::int64_t version = 1;
  std::map<std::string, std::string> metadata;
  std::int64_t created_ms = 0, updated_ms = 0;
};

struct SecretViews {
  std::vector<SecretView> secrets;  // by name
  std::string next_token;           // empty: that was all
};

// A value that the vault has sealed.
struct SealedSecret {
  std::string id;      // of the secret whose value alone it is
  std::string sealed;  // opaque
  std::string rest;    // the body without the value: a JSON object
};

class Secrets {
 public:
  using Metadata = std::map<std::string, std::string>;
  virtual ~Secrets() = default;
  // Has the vault seal the value in a request's body (secret_body.h), of a new secret where
  // `secret` is empty, else of that one, by id or name. Errors: those of vault::Vault::keep();
  // not_found.
  virtual io::Async<Result<SealedSecret>> seal(std::string team, std::string secret, Fd body) = 0;
  // `name`: letter case does not count. Errors: invalid_argument (name or metadata),
  // already_exists, resource_exhausted.
  virtual io::Async<Result<SecretView>> create(std::string team, std::string name,
                                               Metadata metadata, SealedSecret value) = 0;
  // Its next version; sandboxes that use it get it. Errors: not_found, invalid_argument.
  virtual io::Async<Result<SecretView>> update(std::string team, std::optional<Metadata> metadata,
                                               SealedSecret value) = 0;
  virtual io::Async<Result<SecretView>> find(std::string team, std::string secret) = 0;
  // Error: invalid_argument for a token that is none.
  virtual io::Async<Result<SecretViews>> list(std::string team, std::size_t limit,
                                              std::string after) = 0;
  // Sandboxes that use it are refused what they ask with it. Error: not_found.
  virtual io::Async<Status> remove(std::string team, std::string secret) = 0;
};

}  // namespace caisson::api
