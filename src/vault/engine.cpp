#include "vault/engine.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/sha256.h"
#include "egress/gateway/keys.h"
#include "egress/secrets/placeholder.h"
#include "egress/secrets/sealed.h"
#include "io/authority.h"
#include "launcher/gateway_protocol.h"
#include "policy/upstream_proxy.h"
#include "vault/secret_body.h"

namespace caisson::vault {
namespace {

constexpr std::string_view kRecords = "vault records 1";
constexpr std::string_view kKept = "vault kept 1";
constexpr std::string_view kGateway = "vault gateway 1 ";
constexpr std::size_t kNumberDigits = 32;
// What a number begins with whose sealing key follows from the vault's own key; numbers of before
// are digits alone.
constexpr char kOwn = 'v';
// Nobody reads it: programs look at the key alone.
constexpr const char* kAuthorityName = "Caisson sandbox";

// Says whose value it is; nothing goes by it.
policy::SecretRule rule_of_kept(std::string_view id) {
  policy::SecretRule rule;
  rule.name = id;
  rule.source = {.kind = policy::SecretSource::Kind::kVault, .text = std::string(id)};
  rule.hosts = {"kept.invalid"};
  return rule;
}

const egress::SecretEntry* entry_of(const std::vector<egress::SecretEntry>& entries,
                                    const policy::SecretRule& rule) {
  const auto found = std::ranges::find(
      entries, rule.name, [](const egress::SecretEntry& entry) { return entry.rule.name; });
  return found == entries.end() ? nullptr : &*found;
}

SecretValue derive(const SecretValue& key, std::string_view purpose) {
  std::string derived = hmac_sha256(key.bytes(), purpose);
  return SecretValue::take(derived);
}

Error no_secret(const policy::SecretRule& rule) {
  return Error::invalid("the vault has no secret " + rule.source.text);
}

// All of a pipe that nobody writes to any more.
Result<SecretBytes> read_body(int body_fd) {
  SecretBytes bytes(kMostSecretBody + 1);
  std::size_t size = 0;
  while (size < bytes.size()) {
    const ssize_t count = ::read(body_fd, bytes.data() + size, bytes.size() - size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN)
      return fail(Error::invalid("the body is not there as a whole"));
    if (count < 0) return fail_errno("read of a body");
    if (count == 0) break;
    size += static_cast<std::size_t>(count);
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace

Result<std::string> Vault::text_for(std::string_view number, std::string network,
                                    std::string_view sealed) const {
  if (number.empty() || sealed.empty()) return network;
  TRY_ASSIGN(const std::string again, seal_for_gateway(number, sealed));
  return egress::join_policy(std::move(network), again);
}

Result<std::vector<egress::SecretEntry>> Engine::unseal(std::string_view purpose,
                                                        std::string_view sealed) const {
  auto entries = egress::unseal(derive(keys_.key, purpose).bytes(), sealed);
  if (entries.has_value() || keys_.earlier.bytes().empty()) return entries;
  return egress::unseal(derive(keys_.earlier, purpose).bytes(), sealed);
}

Result<egress::SharedSecret> Engine::open_kept(std::string_view id, std::string_view sealed) const {
  TRY_ASSIGN(const auto entries, unseal(kKept, sealed));
  // One secret's value is not another's.
  if (entries.size() != 1 || entries[0].rule != rule_of_kept(id))
    return fail(Error::invalid("the secret's value was not sealed for it"));
  return entries[0].value;
}

// What it was before, where nobody gives another; but not the value of another of the vault's.
Result<egress::SharedSecret> Engine::value_of(const policy::SecretRule& rule,
                                              std::span<const GivenSecret> values,
                                              const egress::SecretEntry* before) const {
  // A password goes to the proxy that it was given for.
  if (before != nullptr && policy::is_proxy_password(rule) && before->rule != rule)
    before = nullptr;
  const auto given = std::ranges::find(values, rule.source.text, &GivenSecret::name);
  if (given != values.end() && !given->kept.empty()) return open_kept(given->kept_id, given->kept);
  if (given != values.end()) return given->value;
  if (before != nullptr && before->rule.source == rule.source) return before->value;
  return fail(no_secret(rule));
}

Result<egress::SecretEntry> Engine::sealed_entry(const policy::SecretRule& rule,
                                                 std::span<const GivenSecret> values,
                                                 const egress::SecretEntry* before) const {
  egress::SecretEntry entry{.rule = rule};
  TRY_ASSIGN(entry.value, value_of(rule, values, before));
  if (policy::is_proxy_password(rule)) {
    if (entry.value) TRY(policy::check_proxy_password(entry.value->bytes()));
    return entry;
  }
  if (entry.value) TRY(egress::check_value_of(rule, entry.value->bytes()));
  const bool had = before != nullptr && before->rule.source == rule.source;
  if (!entry.value && !had) return fail(no_secret(rule));
  if (before != nullptr && before->rule.shape == rule.shape) {
    entry.placeholder = before->placeholder;
    return entry;
  }
  if (!entry.value) return fail(no_secret(rule));
  TRY_ASSIGN(entry.placeholder, egress::placeholder_of(rule, entry.value->bytes(), random_bytes));
  return entry;
}

Result<Sealed> Engine::seal(const policy::NetworkPolicy& policy,
                            std::span<const GivenSecret> values, std::string_view before) const {
  Sealed sealed;
  const std::vector<policy::SecretRule> rules = policy::rules_with_values(policy);
  if (rules.empty()) return sealed;
  std::vector<egress::SecretEntry> known, entries;
  if (!before.empty()) {
    TRY_ASSIGN(known, unseal(kRecords, before));
  }
  for (const policy::SecretRule& rule : rules) {
    auto entry = sealed_entry(rule, values, entry_of(known, rule));
    if (!entry.has_value()) return fail(std::move(entry).error().with(policy::key_of(rule)));
    if (!rule.env.empty()) sealed.variables.emplace(rule.env, entry->placeholder);
    entries.push_back(std::move(*entry));
  }
  // That they fit together.
  TRY(egress::SecretRules::create(entries));
  TRY_ASSIGN(sealed.text, egress::seal(derive(keys_.key, kRecords).bytes(), entries));
  if (sealed.text.size() > launcher::kMostLivePolicy)
    return fail(Error::invalid(
        "the secrets of one sandbox take " + std::to_string(sealed.text.size()) +
        " bytes when they are sealed; allowed are " + std::to_string(launcher::kMostLivePolicy)));
  return sealed;
}

Result<Kept> Engine::keep(std::string_view id, int body_fd) const {
  TRY_ASSIGN(const SecretBytes body, read_body(body_fd));
  TRY_ASSIGN(SecretBody taken, take_value({body.data(), body.size()}));
  if (const Status can = egress::check_secret_value(taken.value.bytes()); !can.has_value())
    return fail(Error(can.error()).with("value"));
  egress::SecretEntry entry{.rule = rule_of_kept(id)};
  entry.value = std::make_shared<const SecretValue>(std::move(taken.value));
  TRY_ASSIGN(std::string sealed,
             egress::seal(derive(keys_.key, kKept).bytes(), std::span(&entry, 1)));
  return Kept{.sealed = std::move(sealed), .rest = std::move(taken.rest)};
}

Result<NetworkKeys> Engine::make_keys() const {
  NetworkKeys keys{.number = kOwn + random_hex(kNumberDigits), .file = nullptr, .certificate = {}};
  TRY_ASSIGN(const auto authority, io::Authority::make(kAuthorityName));
  const SecretValue sealing = derive(keys_.key, std::string(kGateway) + keys.number);
  TRY_ASSIGN(Fd file, egress::write_keys(sealing.bytes(), *authority));
  keys.file = std::make_shared<const Fd>(std::move(file));
  keys.certificate = authority->certificate();
  return keys;
}

Result<std::string> Engine::seal_for_gateway(std::string_view number,
                                             std::string_view sealed) const {
  const bool own = number.starts_with(kOwn);
  if (!own && keys_.earlier.bytes().empty())
    return fail(Error::invalid("the number of a sandbox's keys is not the vault's"));
  const SecretValue& master = own ? keys_.key : keys_.earlier;
  // The server knows the earlier key: nothing that is sealed under ours goes out under that.
  const SecretValue records = derive(master, kRecords);
  auto entries = own ? unseal(kRecords, sealed) : egress::unseal(records.bytes(), sealed);
  if (!entries.has_value() && !own)
    return fail(Error::precondition(
        "the sandbox was made before this server had a vault, and its secrets stay as they were; "
        "make another one"));
  if (!entries.has_value()) return fail(std::move(entries).error());
  const SecretValue key = derive(master, std::string(kGateway).append(number));
  return egress::seal(key.bytes(), *entries);
}

}  // namespace caisson::vault
