#include "egress/secrets/placeholder.h"

#include <algorithm>

#include "base/encoding.h"
#include "base/guards.h"
#include "policy/upstream_proxy.h"

namespace caisson::egress {
namespace {

constexpr std::string_view kLettersAndDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
constexpr std::string_view kBase32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

// Letters and digits that hold 128 bits: 62^22 is 2^130.
constexpr std::size_t kEnough = 22;
constexpr std::size_t kWithoutShape = 32;

constexpr std::string_view kAwsIdPrefix = "AKIA";
constexpr std::string_view kAwsTemporaryPrefix = "ASIA";
constexpr std::size_t kAwsId = 20;
constexpr std::size_t kAwsKey = 40;

std::string random_text(std::size_t length, std::string_view alphabet, const RandomBytes& random) {
  // Bytes from here on would make the first characters likelier than the others.
  const std::size_t even = 256 / alphabet.size() * alphabet.size();
  std::string text;
  text.reserve(length);
  while (text.size() < length) {
    for (const char c : random(length - text.size())) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < even) text += alphabet[byte % alphabet.size()];
    }
  }
  return text;
}

std::string random_text(std::size_t length, const RandomBytes& random) {
  return random_text(length, kLettersAndDigits, random);
}

// base64url has no text of 4k+1 characters; a space more in the header shifts what is left.
std::string jwt(std::size_t length, const RandomBytes& random) {
  const std::string signature = base64url_encode(random(32));
  const auto payload = [&](std::size_t id) {
    return R"({"exp":4102444800,"jti":")" + random_text(id, random) + "\"}";
  };
  const std::size_t least_payload = payload(0).size() + kEnough;
  for (const std::string_view header :
       {R"({"alg":"HS256","typ":"JWT"})", R"({"alg":"HS256", "typ":"JWT"})"}) {
    const std::string first = base64url_encode(header) + ".";
    const std::size_t others = first.size() + 1 + signature.size();
    if (length < others) break;
    const std::size_t left = length - others;
    // So many bytes become `left` characters, where any number does.
    const std::size_t bytes = left * 3 / 4;
    if (left % 4 == 1) continue;
    if (bytes < least_payload) break;
    const std::size_t id = bytes - least_payload + kEnough;
    return first + base64url_encode(payload(id)) + "." + signature;
  }
  return base64url_encode(R"({"alg":"HS256","typ":"JWT"})") + "." +
         base64url_encode(payload(kEnough)) + "." + signature;
}

// Servers other than AWS's have others.
std::string access_key(std::string_view prefix, std::size_t length, const RandomBytes& random) {
  if (length != kAwsId) return random_text(std::max(length, kLeastPlaceholder), random);
  return std::string(prefix) + random_text(kAwsId - prefix.size(), kBase32, random);
}

Result<std::string> aws(std::size_t length, const RandomBytes& random) {
  if (length == kAwsId) return access_key(kAwsIdPrefix, length, random);
  if (length == kAwsKey) return random_text(kAwsKey, random);
  return fail(Error::invalid("a secret of the shape aws has " + std::to_string(length) +
                             " bytes; allowed are 20 (an access key's id) and 40 (an access "
                             "key)"));
}

}  // namespace

namespace {

Status check_bytes(std::string_view value, std::size_t least) {
  if (value.size() < least || value.size() > kMostSecret)
    return fail(Error::invalid("the secret's value has " + std::to_string(value.size()) +
                               " bytes; allowed are " + std::to_string(least) + " to 4096"));
  const auto bad = std::ranges::find_if(
      value, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  if (bad == value.end() || guard_off(Guard::kSecretBytes)) return {};
  return fail(Error::invalid("byte " + std::to_string(bad - value.begin() + 1) +
                             " of the secret's value is a control character (a line end, "
                             "perhaps); allowed is a value without any"));
}

bool is_open(const policy::SecretRule& rule) {
  return rule.inject.has_value() && !rule.inject->scrub;
}

}  // namespace

Status check_secret_value(std::string_view value) {
  return check_bytes(value, kLeastSecret);
}

Status check_open_value(std::string_view value) {
  return check_bytes(value, 1);
}

Status check_value_of(const policy::SecretRule& rule, std::string_view value) {
  if (policy::is_proxy_password(rule)) return policy::check_proxy_password(value);
  return is_open(rule) ? check_open_value(value) : check_secret_value(value);
}

Result<std::string> placeholder_of(const policy::SecretRule& rule, std::string_view value,
                                   const RandomBytes& random) {
  TRY(check_value_of(rule, value));
  if (is_open(rule)) return random_text(kWithoutShape, random);
  if (rule.signing && rule.signing->part == policy::SecretSigning::Part::kAccessKey)
    return access_key(rule.signing->temporary ? kAwsTemporaryPrefix : kAwsIdPrefix, value.size(),
                      random);
  return make_placeholder(rule.shape, value, random);
}

Result<std::string> make_placeholder(const policy::SecretShape& shape, std::string_view value,
                                     const RandomBytes& random) {
  TRY(check_secret_value(value));
  using Kind = policy::SecretShape::Kind;
  switch (shape.kind) {
    case Kind::kLength:
      return random_text(std::max(value.size(), kEnough), random);
    case Kind::kPrefix:
      return shape.prefix + random_text(std::max(value.size(), shape.prefix.size() + kEnough) -
                                            shape.prefix.size(),
                                        random);
    case Kind::kJwt:
      return jwt(value.size(), random);
    case Kind::kAws:
      return aws(value.size(), random);
    case Kind::kNone:
      break;
  }
  return random_text(kWithoutShape, random);
}

bool is_placeholder(std::string_view text) {
  return text.size() >= kLeastPlaceholder && text.size() <= kMostSecret + 64 &&
         std::ranges::all_of(text, [](char c) {
           return kLettersAndDigits.find(c) != std::string_view::npos || c == '-' || c == '.' ||
                  c == '_' || c == '~';
         });
}

}  // namespace caisson::egress
