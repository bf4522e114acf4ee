#include "fleet/vault.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/sha256.h"
#include "egress/gateway/keys.h"
#include "egress/secrets/placeholder.h"
#include "egress/secrets/sealed.h"
#include "io/authority.h"
#include "policy/upstream_proxy.h"

namespace caisson::fleet {
namespace {

constexpr std::string_view kRecords = "vault records 1";
constexpr std::string_view kKept = "vault kept 1";
constexpr std::string_view kGateway = "vault gateway 1 ";
constexpr std::size_t kNumberDigits = 32;
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

// What it was before, where nobody gives another; but not the value of another of the vault's.
Result<egress::SharedSecret> value_of(const policy::SecretRule& rule,
                                      std::span<const GivenSecret> values,
                                      const egress::SecretEntry* before) {
  // A password goes to the proxy that it was given for.
  if (before != nullptr && policy::is_proxy_password(rule) && before->rule != rule)
    before = nullptr;
  const auto given = std::ranges::find(values, rule.source.text, &GivenSecret::name);
  if (given != values.end()) return given->value;
  if (before != nullptr && before->rule.source == rule.source) return before->value;
  return fail(Error::invalid("the vault has no secret " + rule.source.text));
}

Result<egress::SecretEntry> sealed_entry(const policy::SecretRule& rule,
                                         std::span<const GivenSecret> values,
                                         const egress::SecretEntry* before) {
  egress::SecretEntry entry{.rule = rule};
  TRY_ASSIGN(entry.value, value_of(rule, values, before));
  if (policy::is_proxy_password(rule)) {
    if (entry.value) TRY(policy::check_proxy_password(entry.value->bytes()));
    return entry;
  }
  if (entry.value) TRY(egress::check_value_of(rule, entry.value->bytes()));
  const bool had = before != nullptr && before->rule.source == rule.source;
  if (!entry.value && !had)
    return fail(Error::invalid("the vault has no secret " + rule.source.text));
  if (before != nullptr && before->rule.shape == rule.shape) {
    entry.placeholder = before->placeholder;
    return entry;
  }
  if (!entry.value) return fail(Error::invalid("the vault has no secret " + rule.source.text));
  TRY_ASSIGN(entry.placeholder, egress::placeholder_of(rule, entry.value->bytes(), random_bytes));
  return entry;
}

}  // namespace

Vault::Vault(std::string_view key) : key_(key) {}

SecretValue Vault::derive(std::string_view purpose) const {
  std::string key = hmac_sha256(key_.bytes(), purpose);
  return SecretValue::take(key);
}

Result<std::string> Vault::seal(const policy::NetworkPolicy& policy,
                                std::span<const GivenSecret> values,
                                std::string_view before) const {
  const std::vector<policy::SecretRule> rules = policy::rules_with_values(policy);
  if (rules.empty()) return std::string();
  const SecretValue key = derive(kRecords);
  std::vector<egress::SecretEntry> known, entries;
  if (!before.empty()) {
    TRY_ASSIGN(known, egress::unseal(key.bytes(), before));
  }
  for (const policy::SecretRule& rule : rules) {
    auto entry = sealed_entry(rule, values, entry_of(known, rule));
    if (!entry.has_value()) return fail(std::move(entry).error().with(policy::key_of(rule)));
    entries.push_back(std::move(*entry));
  }
  // That they fit together.
  TRY(egress::SecretRules::create(entries));
  return egress::seal(key.bytes(), entries);
}

Result<std::map<std::string, std::string>> Vault::placeholders(std::string_view sealed) const {
  std::map<std::string, std::string> variables;
  if (sealed.empty()) return variables;
  TRY_ASSIGN(const auto entries, egress::unseal(derive(kRecords).bytes(), sealed));
  for (const egress::SecretEntry& entry : entries) {
    if (!entry.rule.env.empty()) variables.emplace(entry.rule.env, entry.placeholder);
  }
  return variables;
}

Result<std::string> Vault::seal_value(std::string_view id, std::string_view value) const {
  TRY(egress::check_secret_value(value));
  egress::SecretEntry entry{.value = std::make_shared<const SecretValue>(value)};
  entry.rule = rule_of_kept(id);
  return egress::seal(derive(kKept).bytes(), std::span(&entry, 1));
}

Result<egress::SharedSecret> Vault::open_value(std::string_view id, std::string_view sealed) const {
  TRY_ASSIGN(const auto entries, egress::unseal(derive(kKept).bytes(), sealed));
  // One secret's value is not another's.
  if (entries.size() != 1 || entries[0].rule != rule_of_kept(id))
    return fail(Error::invalid("the secret's value was not sealed for it"));
  return entries[0].value;
}

Result<NetworkKeys> Vault::make_keys() const {
  NetworkKeys keys{.number = random_hex(kNumberDigits), .file = nullptr, .certificate = {}};
  TRY_ASSIGN(const auto authority, io::Authority::make(kAuthorityName));
  const SecretValue sealing = derive(std::string(kGateway) + keys.number);
  TRY_ASSIGN(Fd file, egress::write_keys(sealing.bytes(), *authority));
  keys.file = std::make_shared<const Fd>(std::move(file));
  keys.certificate = authority->certificate();
  return keys;
}

Result<std::string> Vault::text_for(std::string_view number, std::string network,
                                    std::string_view sealed) const {
  if (number.empty() || sealed.empty()) return network;
  TRY_ASSIGN(const auto entries, egress::unseal(derive(kRecords).bytes(), sealed));
  const SecretValue key = derive(std::string(kGateway).append(number));
  TRY_ASSIGN(const std::string again, egress::seal(key.bytes(), entries));
  return egress::join_policy(std::move(network), again);
}

}  // namespace caisson::fleet
