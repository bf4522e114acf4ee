// The secrets of a sandbox on their way to its gateway through hands that must not read them: the
// supervisor, which has read hostile bytes, passes policies on, and a database keeps them.
//
// A sealed text has the rules, the placeholders and the values, under a key that both ends have and
// nobody between (AES-256-GCM, NIST SP 800-38D, a random nonce each). The rules are inside, so that
// whoever passes it on cannot give a value to other hosts. Pure but for the nonce; any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/secret.h"
#include "egress/secrets/secret_rules.h"

namespace caisson::egress {

// A key for it, at random.
inline constexpr std::size_t kSealingKey = 32;
SecretValue make_sealing_key();

// One line of base64. Old values are left out; an entry may have none at all. Error:
// invalid_argument (a key of another size), internal.
Result<std::string> seal(std::string_view key, std::span<const SecretEntry> entries);
// Error: invalid_argument, for what was not sealed with this key, or has been changed.
Result<std::vector<SecretEntry>> unseal(std::string_view key, std::string_view text);

// What a gateway is told: a policy as JSON and, behind a line break, perhaps its sealed secrets.
struct PolicyText {
  std::string_view policy, sealed;
};
PolicyText split_policy(std::string_view text);
std::string join_policy(std::string policy, std::string_view sealed);

}  // namespace caisson::egress
