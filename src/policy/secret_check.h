// What is wrong in a rule about a secret, whichever front end made it: one place for the documents'
// reader and for the gateway, which trusts no other's check. Pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <caisson/secrets.h>

#include "base/error.h"

namespace caisson::policy {

// Error: invalid_argument with the key below `path` ("secrets.gh.hosts[0]"), what was found there
// and what is allowed.
Status check_secret(const SecretRule& rule, std::string_view path = "secret");
// Each of them, below its name, and that no two have one name or one variable, and that the parts
// of credentials stand together. `path` is that of all of them.
Status check_secrets(std::span<const SecretRule> rules, std::string_view path = "secrets");

// Where a value comes from. `path`: the key of the source. Error: as above.
Status check_source(const SecretSource& source, const std::string& path);

// What stands behind a secret's name in those of its parts: ".access_key", ".secret_key",
// ".session_token".
std::string_view suffix_of(SecretSigning::Part part);
// The name that a document has for the rule: of a part that of the credentials.
std::string document_name(const SecretRule& rule);

// The words of a JSON pointer (RFC 6901), unescaped; at least one. Error: invalid_argument.
Result<std::vector<std::string>> parse_json_pointer(std::string_view text);

// Whether servers are known to repeat this header (its name in any case) in what they answer or to
// log it, or it is not for a client to choose: one that "*" does not stand for, and that no rule
// may name, but for Cookie.
bool is_repeated_header(std::string_view name);

}  // namespace caisson::policy
