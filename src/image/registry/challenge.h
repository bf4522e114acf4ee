// What a registry answers to a request without the right credentials: WWW-Authenticate (RFC 9110,
// 11.6.1), and the answer of a token server. Both come from elsewhere. Pure functions.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "image/registry/url.h"

namespace caisson::image {

struct Challenge {
  std::string scheme;                         // lower case: "bearer", "basic"
  std::map<std::string, std::string> values;  // names in lower case; absent for token68 forms

  std::string value(std::string_view name) const;
};

// All challenges of one header's value. Error: invalid.
Result<std::vector<Challenge>> parse_challenges(std::string_view header);

// What to ask of a token server for the right to read `repository`: `realm` with service and scope.
// `registry` is where the challenge came from: from a registry behind TLS no realm without it is
// taken, so that nothing that is meant for it goes over the wire in the clear.
Result<Url> token_url(const Challenge& challenge, const Url& registry, std::string_view repository);

// The token in a token server's answer ("token" or "access_token"). It is fit for a header.
Result<std::string> parse_token(std::string_view json);

}  // namespace caisson::image
