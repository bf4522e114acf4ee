// The value in the body of a request that sets a secret: {"value": "…", …}.
//
// The one document of a client's that the vault reads, by the scanner that the gateway puts values
// into JSON with (egress/secrets/json_span.h): it finds where the string stands, and everything
// else goes back as it came, to whoever has a use for it. Pure; fuzzed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/secret.h"

namespace caisson::vault {

// A value of 8 KiB and as much of metadata, all of it in escapes, and some blanks.
inline constexpr std::size_t kMostSecretBody = 128 * 1024;

struct SecretBody {
  SecretValue value;
  std::string rest;  // the same object with an empty "value"
};

// Errors: invalid_argument (no JSON object, no string "value" in it), out_of_range. No message has
// a byte of it.
Result<SecretBody> take_value(std::string_view body);

}  // namespace caisson::vault
