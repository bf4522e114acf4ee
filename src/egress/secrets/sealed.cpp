#include "egress/secrets/sealed.h"

#include <openssl/evp.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/encoding.h"
#include "policy/network_document.h"
#include "policy/upstream_proxy.h"

namespace caisson::egress {
namespace {

constexpr std::size_t kNonce = 12;
constexpr std::size_t kTag = 16;
// What it is, so that nothing else under the same key is taken for it.
constexpr std::string_view kLabel = "caisson secrets 1";

struct FreeCipher {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Cipher = std::unique_ptr<EVP_CIPHER_CTX, FreeCipher>;

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

Error cannot_seal() {
  return Error::internal("the secrets cannot be sealed");
}

Error not_sealed() {
  return Error::invalid("the sealed secrets are not this sandbox's, or were changed");
}

// Texts one after the other, each behind its length.
class Texts {
 public:
  explicit Texts(std::size_t size) { bytes_.reserve(size); }
  static std::size_t size_of(std::string_view text) { return kLength + text.size(); }
  void add(std::string_view text) {
    for (std::size_t at = 0; at < kLength; ++at)
      bytes_.push_back(static_cast<char>(text.size() >> (8 * at) & 0xff));
    bytes_.insert(bytes_.end(), text.begin(), text.end());
  }
  std::string_view bytes() const { return {bytes_.data(), bytes_.size()}; }

  // Takes the first of them off; nullopt: there is none, or it is cut off.
  static std::optional<std::string_view> next(std::string_view& rest) {
    if (rest.size() < kLength) return std::nullopt;
    std::size_t size = 0;
    for (std::size_t at = 0; at < kLength; ++at)
      size |= static_cast<std::size_t>(static_cast<unsigned char>(rest[at])) << (8 * at);
    rest.remove_prefix(kLength);
    if (size > rest.size()) return std::nullopt;
    const std::string_view text = rest.substr(0, size);
    rest.remove_prefix(size);
    return text;
  }

 private:
  static constexpr std::size_t kLength = 4;
  SecretBytes bytes_;
};

std::string rules_of(std::span<const SecretEntry> entries) {
  policy::NetworkPolicy carrier;
  for (const SecretEntry& entry : entries) {
    if (policy::is_proxy_password(entry.rule))
      carrier.upstream_proxy = policy::proxy_of(entry.rule);
    else
      carrier.secrets.push_back(entry.rule);
  }
  return policy::written(carrier);
}

// No value is empty.
std::string_view value_in(const SecretEntry& entry) {
  return entry.value ? entry.value->bytes() : std::string_view();
}

Result<std::vector<SecretEntry>> entries_in(std::string_view bytes) {
  const auto rules = Texts::next(bytes);
  if (!rules) return fail(not_sealed());
  TRY_ASSIGN(policy::NetworkPolicy carrier, policy::parse_written_network_policy(*rules));
  std::vector<SecretEntry> entries;
  for (policy::SecretRule& rule : policy::rules_with_values(carrier)) {
    const auto placeholder = Texts::next(bytes);
    const auto value = Texts::next(bytes);
    if (!placeholder || !value) return fail(not_sealed());
    entries.push_back({.rule = std::move(rule), .placeholder = std::string(*placeholder)});
    if (!value->empty()) entries.back().value = std::make_shared<const SecretValue>(*value);
  }
  if (!bytes.empty()) return fail(not_sealed());
  return entries;
}

}  // namespace

SecretValue make_sealing_key() {
  std::string bytes = random_bytes(kSealingKey);
  return SecretValue::take(bytes);
}

Result<std::string> seal(std::string_view key, std::span<const SecretEntry> entries) {
  if (key.size() != kSealingKey) return fail(Error::invalid("a sealing key of another size"));
  const std::string rules = rules_of(entries);
  std::size_t size = Texts::size_of(rules);
  for (const SecretEntry& entry : entries) {
    size += Texts::size_of(entry.placeholder) + Texts::size_of(value_in(entry));
  }
  Texts texts(size);
  texts.add(rules);
  for (const SecretEntry& entry : entries) {
    texts.add(entry.placeholder);
    texts.add(value_in(entry));
  }
  const std::string_view plain = texts.bytes();
  std::string sealed = random_bytes(kNonce);
  sealed.resize(kNonce + plain.size() + kTag);
  auto* const out = reinterpret_cast<unsigned char*>(sealed.data());
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int written = 0;
  const bool done =
      cipher != nullptr &&
      EVP_EncryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes_of(key), out) == 1 &&
      EVP_EncryptUpdate(cipher.get(), nullptr, &written, bytes_of(kLabel), kLabel.size()) == 1 &&
      EVP_EncryptUpdate(cipher.get(), out + kNonce, &written, bytes_of(plain),
                        static_cast<int>(plain.size())) == 1 &&
      EVP_EncryptFinal_ex(cipher.get(), out + kNonce + written, &written) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, kTag, out + sealed.size() - kTag) ==
          1;
  if (!done) return fail(cannot_seal());
  return base64_encode(sealed);
}

Result<std::vector<SecretEntry>> unseal(std::string_view key, std::string_view text) {
  const auto sealed = base64_decode(text);
  if (key.size() != kSealingKey || !sealed || sealed->size() < kNonce + kTag)
    return fail(not_sealed());
  const std::size_t size = sealed->size() - kNonce - kTag;
  const unsigned char* const in = bytes_of(*sealed);
  std::string tag = sealed->substr(kNonce + size);
  SecretBytes plain(size + 1);
  auto* const out = reinterpret_cast<unsigned char*>(plain.data());
  const Cipher cipher(EVP_CIPHER_CTX_new());
  int written = 0, rest = 0;
  const bool done =
      cipher != nullptr &&
      EVP_DecryptInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, bytes_of(key), in) == 1 &&
      EVP_DecryptUpdate(cipher.get(), nullptr, &written, bytes_of(kLabel), kLabel.size()) == 1 &&
      EVP_DecryptUpdate(cipher.get(), out, &written, in + kNonce, static_cast<int>(size)) == 1 &&
      EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, kTag, tag.data()) == 1 &&
      EVP_DecryptFinal_ex(cipher.get(), out + written, &rest) == 1;
  if (!done) return fail(not_sealed());
  return entries_in({plain.data(), size});
}

PolicyText split_policy(std::string_view text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  return {.policy = text.substr(0, end), .sealed = text.substr(std::min(end + 1, text.size()))};
}

std::string join_policy(std::string policy, std::string_view sealed) {
  if (!sealed.empty()) policy.append("\n").append(sealed);
  return policy;
}

}  // namespace caisson::egress
