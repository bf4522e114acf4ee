// Secrets that a sandbox uses without having them: the `secrets` of a network policy, as plain
// values.
//
// The sandbox gets a placeholder of the secret's shape, and the gateway puts the value in its place
// where a rule says so: in requests to named hosts, in named parts of them. Front ends fill
// SecretRules; policy/secret_check.h says what is wrong in one, and the gateway compiles them
// together with the values, which never stand here. Part of the public API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace caisson::policy {

// Where the value is fetched by whoever keeps values; a description alone.
struct SecretSource {
  // env: a variable of whoever starts the sandbox. file: a path. command: a program that prints the
  // value. fd: an inherited descriptor. vault: what a server keeps by that name, or was told with
  // the sandbox.
  enum class Kind { kEnv, kFile, kCommand, kFd, kVault };
  Kind kind = Kind::kEnv;
  std::string text;                     // of env and vault its name, of file its path
  std::vector<std::string> command;     // program and arguments; no shell
  std::optional<std::uint64_t> ttl_ms;  // of command: how long a value holds that names no end
  int descriptor = -1;                  // of fd: at least 3
  bool operator==(const SecretSource&) const = default;
};

// What a placeholder has in common with the value.
struct SecretShape {
  // length: its length alone. prefix: length and a beginning ("ghp_"). jwt: a token that libraries
  // parse. aws: an access key's id or an access key. none: nothing.
  enum class Kind { kLength, kPrefix, kJwt, kAws, kNone };
  Kind kind = Kind::kLength;
  std::string prefix;  // of prefix: 1 to 64 letters, digits, '-', '.', '_' and '~'
  bool operator==(const SecretShape&) const = default;
};

// A part of a request in which a placeholder becomes the value.
struct SecretPlace {
  // basic: user name or password of `Authorization: Basic`. json: the string at a JSON pointer of a
  // JSON body. form: a field of an application/x-www-form-urlencoded body.
  enum class Kind { kHeader, kBasic, kQuery, kPath, kJson, kForm };
  enum class Half { kAny, kUser, kPassword };
  Kind kind = Kind::kHeader;
  // The header ("*": any that servers do not usually repeat in what they answer), the parameter,
  // the pointer (RFC 6901) or the field.
  std::string name;
  Half half = Half::kAny;  // of basic
  bool operator==(const SecretPlace&) const = default;
};

// What a request that breaks a rule about a secret costs. block: the request. terminate: the
// sandbox.
enum class OnSecretViolation { kBlock, kTerminate };

// Instead of a placeholder: the gateway sets a header in each request to the hosts, and the sandbox
// has nothing.
struct SecretInjection {
  std::string header;
  std::string prefix;  // before the value: "Bearer "
  // Whether the value is taken out of answers. Where it is not, the hosts may tell the sandbox what
  // it is, and it may have any length.
  bool scrub = true;
  bool operator==(const SecretInjection&) const = default;
};

// A part of the credentials with which requests are signed by AWS's Signature Version 4. What a
// document has as one secret of `kind: sigv4` is two or three rules, one behind the other:
// NAME.access_key, NAME.secret_key and, of temporary credentials, NAME.session_token. Requests that
// were signed with the placeholders are signed anew with the values; no placeholder may stand
// anywhere else.
struct SecretSigning {
  enum class Part { kAccessKey, kSecretKey, kSessionToken };
  Part part = Part::kAccessKey;
  bool temporary = false;  // with a session token
  // What a credential scope may name: "s3", "eu-central-1".
  std::vector<std::string> services, regions;
  bool operator==(const SecretSigning&) const = default;
};

struct SecretRule {
  std::string name;  // 1 to 64 letters, digits, '-', '.' and '_'; one secret has it
  std::string env;   // the variable that has the placeholder in the sandbox; empty: none
  SecretSource source;
  SecretShape shape;
  std::vector<std::string> hosts;  // as in a NetworkRule; at least one
  // Empty: the headers authorization, x-api-key, api-key, x-goog-api-key and private-token, and
  // both halves of basic.
  std::vector<SecretPlace> in;
  std::uint32_t max_occurrences = 1;  // in one request; 1 to 64
  OnSecretViolation on_violation = OnSecretViolation::kBlock;
  std::vector<std::string> passthrough;  // hosts that may see the placeholder as it is
  // With it env, shape, in, max_occurrences and passthrough have no meaning and stay as they are.
  std::optional<SecretInjection> inject;
  // With it shape, in, max_occurrences, passthrough and inject have no meaning and stay as they
  // are.
  std::optional<SecretSigning> signing;
  bool operator==(const SecretRule&) const = default;
};

// How much there may be of one sandbox's.
inline constexpr std::size_t kMaxSecrets = 64;
inline constexpr std::size_t kMaxSecretItems = 64;  // of each list of a rule

}  // namespace caisson::policy
