// Signed file URLs: who has one may read or write one path without the sandbox's token. Pure.
//
// A signature is "v1_" and the SHA-256 of path, operation, user, token and the end of its validity,
// as the SDKs compute it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/sha256.h"

namespace caisson::api::e2b {

enum class FileAccess : std::uint8_t { kRead, kWrite };

// The signatures of one claim by any number of tokens: what comes before the token, which may be
// long, is hashed once. `path` and `user` as the query has them; `expires` in Unix seconds.
class FileSigner {
 public:
  FileSigner(std::string_view path, FileAccess access, std::string_view user,
             std::optional<std::int64_t> expires);
  std::string sign(std::string_view token) const;

 private:
  Sha256 before_;      // the token
  std::string after_;  // the token
};
// One of them.
std::string sign_file(std::string_view path, FileAccess access, std::string_view user,
                      std::string_view token, std::optional<std::int64_t> expires);

// signature_expiration of a query. Error: invalid_argument for what is no number.
Result<std::optional<std::int64_t>> parse_expiration(std::optional<std::string_view> text);

// What a request for a file says about its right to it.
struct FileClaim {
  std::optional<std::string_view> token_header;  // X-Access-Token
  std::optional<std::string_view> signature;
  std::optional<std::string_view> expires;
  std::string_view path, user;
};
// `token` empty: the sandbox asks for none. Error: unauthenticated with the text that clients
// know; invalid_argument for an expiration that is no number.
Status check_file_claim(const FileClaim& claim, FileAccess access, std::string_view token,
                        std::int64_t now);

}  // namespace caisson::api::e2b
