// What a network policy would say of a URL, as a sentence: for people who write one. Asks the same
// questions as the gateway does. Pure; no name is resolved, so of a name it says what holds where
// the name leads to addresses of the Internet.
#pragma once

#include <string>
#include <string_view>

#include "policy/network_policy.h"

namespace caisson::policy {

struct NetworkExplanation {
  NetworkDecision decision;
  std::string sentence;
};

// `url`: https://HOST[:PORT][/…] (TLS), http://HOST[:PORT]/PATH (without TLS), or tcp://HOST:PORT
// (bytes of any kind). `method` is of http alone. Error: invalid_argument.
Result<NetworkExplanation> explain(const CompiledNetwork& policy, std::string_view url,
                                   std::string_view method = "GET");

}  // namespace caisson::policy
