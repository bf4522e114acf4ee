// Credentials for registries from where Docker's tools keep them: $DOCKER_CONFIG/config.json, else
// ~/.docker/config.json. Its "auths" hold them base64-encoded; "credHelpers" and "credsStore" name
// a program docker-credential-NAME that knows them, which is asked on its standard input and ended
// after ten seconds; one that is not installed knows nothing. Nothing of a secret is ever part of
// an error.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::image {

inline constexpr std::size_t kMaxCredentialFile = 1 << 20;
inline constexpr std::size_t kMaxHelperAnswer = 64 << 10;

struct Credentials {
  std::string user;
  std::string secret;
  // An identity token in the place of both (OAuth 2 refresh token).
  std::string identity_token;
  bool operator==(const Credentials&) const = default;
};

struct CredentialFile {
  std::map<std::string, Credentials> entries;  // by HOST[:PORT]
  std::map<std::string, std::string> helpers;  // by HOST[:PORT]: NAME of docker-credential-NAME
  std::string store;                           // NAME for every other host
};

// The text of a config.json. Keys that are URLs count by their host. Pure.
Result<CredentialFile> parse_credential_file(std::string_view text);

// What is known for a registry; nullopt: nothing. Error: the file cannot be read or is malformed,
// or a helper that is named does not work.
Result<std::optional<Credentials>> find_credentials(std::string_view registry);

// A helper's answer to `get`. Pure.
Result<Credentials> parse_helper_answer(std::string_view text);

}  // namespace caisson::image
