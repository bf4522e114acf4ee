#include "egress/secrets/secret_rules.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/guards.h"
#include "egress/secrets/placeholder.h"
#include "http/text.h"
#include "policy/secret_check.h"
#include "policy/upstream_proxy.h"

namespace caisson::egress {
namespace {

using Kind = policy::SecretPlace::Kind;
using Half = policy::SecretPlace::Half;

// Where a rule names no place.
std::vector<policy::SecretPlace> usual_places() {
  std::vector<policy::SecretPlace> places;
  for (const std::string_view name :
       {"authorization", "x-api-key", "api-key", "x-goog-api-key", "private-token"})
    places.push_back({Kind::kHeader, std::string(name), Half::kAny});
  places.push_back({Kind::kBasic, "", Half::kAny});
  return places;
}

Result<std::vector<policy::HostPattern>> parse_all(const std::vector<std::string>& texts) {
  std::vector<policy::HostPattern> patterns;
  for (const std::string& text : texts) {
    TRY_ASSIGN(policy::HostPattern pattern, policy::HostPattern::parse(text));
    patterns.push_back(std::move(pattern));
  }
  return patterns;
}

bool matches_any(const std::vector<policy::HostPattern>& patterns, const policy::Host& host) {
  return std::ranges::any_of(
      patterns, [&](const policy::HostPattern& pattern) { return pattern.matches(host); });
}

Status check_values(const SecretEntry& entry) {
  if (entry.old_values.size() > kMostOldValues)
    return fail(Error::invalid(std::to_string(entry.old_values.size()) +
                               " old values are kept; allowed are 8"));
  if (entry.value) TRY(check_value_of(entry.rule, entry.value->bytes()));
  for (const SharedSecret& old : entry.old_values) {
    if (!old) return fail(Error::invalid("an old value is missing; allowed is a value"));
    TRY(check_value_of(entry.rule, old->bytes()));
  }
  return {};
}

// That no text of one kind is found in another: what is put in would be taken for what is looked
// for.
Status check_apart(const std::vector<Secret>& secrets, std::span<const std::string_view> values) {
  for (const Secret& secret : secrets) {
    const std::string_view placeholder = secret.placeholder();
    for (const Secret& other : secrets) {
      if (&other != &secret && other.placeholder().find(placeholder) != std::string::npos)
        return fail(Error::invalid("secret " + secret.name() + ": its placeholder is part of " +
                                   "that of " + other.name() + "; allowed is one of its own"));
    }
    for (const std::string_view value : values) {
      if (value.find(placeholder) != std::string_view::npos ||
          placeholder.find(value) != std::string_view::npos)
        return fail(Error::invalid("secret " + secret.name() +
                                   ": its placeholder and a value have a part in common; "
                                   "allowed is one made at random"));
    }
  }
  return {};
}

}  // namespace

Result<Secret> Secret::create(SecretEntry entry) {
  TRY(check_values(entry));
  if (!is_placeholder(entry.placeholder))
    return fail(Error::invalid(
        "its placeholder is none; allowed are 16 to 4160 letters, digits, '-', '.', '_' and '~'"));
  Secret secret;
  secret.rule_ = std::move(entry.rule);
  secret.placeholder_ = std::move(entry.placeholder);
  secret.value_ = std::move(entry.value);
  secret.revoked_ = entry.revoked;
  TRY_ASSIGN(secret.hosts_, parse_all(secret.rule_.hosts));
  TRY_ASSIGN(secret.passthrough_, parse_all(secret.rule_.passthrough));
  if (secret.rule_.in.empty() && !secret.rule_.inject && !secret.rule_.signing)
    secret.rule_.in = usual_places();
  for (const policy::SecretPlace& place : secret.rule_.in) {
    if (place.kind != Kind::kJson) continue;
    TRY_ASSIGN(std::vector<std::string> words, policy::parse_json_pointer(place.name));
    secret.pointers_.push_back({place.name, std::move(words)});
  }
  return secret;
}

bool Secret::serves(const policy::Host& host) const {
  return guard_off(Guard::kSecretHosts) || matches_any(hosts_, host);
}

bool Secret::passes(const policy::Host& host) const {
  return guard_off(Guard::kSecretPassthrough) || matches_any(passthrough_, host);
}

bool Secret::in_header(std::string_view name) const {
  if (guard_off(Guard::kSecretPlaces)) return true;
  return std::ranges::any_of(rule_.in, [&](const policy::SecretPlace& place) {
    if (place.kind != Kind::kHeader) return false;
    if (place.name == "*") return !policy::is_repeated_header(name);
    return http::same_name(place.name, name);
  });
}

bool Secret::in_basic(Half half) const {
  return std::ranges::any_of(rule_.in, [&](const policy::SecretPlace& place) {
    return place.kind == Kind::kBasic && (place.half == Half::kAny || place.half == half);
  });
}

bool Secret::has_place(Kind kind, std::string_view name) const {
  if (guard_off(Guard::kSecretPlaces)) return true;
  return std::ranges::any_of(rule_.in, [&](const policy::SecretPlace& place) {
    return place.kind == kind && place.name == name;
  });
}

bool Secret::in_path() const {
  return has_place(Kind::kPath, "");
}

bool Secret::in_query(std::string_view name) const {
  return has_place(Kind::kQuery, name);
}

bool Secret::in_form(std::string_view name) const {
  return has_place(Kind::kForm, name);
}

bool Secret::in_some_form() const {
  return std::ranges::any_of(
      rule_.in, [](const policy::SecretPlace& place) { return place.kind == Kind::kForm; });
}

void SecretRules::find_signers() {
  using Part = policy::SecretSigning::Part;
  const auto live = [&](const std::string& name, Part part) -> std::optional<std::size_t> {
    const std::string whole = name + std::string(policy::suffix_of(part));
    const auto found = std::ranges::find_if(all_, [&](const Secret& secret) {
      return secret.name() == whole && secret.signing() && !secret.revoked();
    });
    if (found == all_.end()) return std::nullopt;
    return static_cast<std::size_t>(found - all_.begin());
  };
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const Secret& secret = all_[i];
    if (secret.revoked() || !secret.signing() || secret.signing()->part != Part::kAccessKey)
      continue;
    Signer signer{.name = policy::document_name(secret.rule_), .access_key = i};
    const auto key = live(signer.name, Part::kSecretKey);
    if (secret.signing()->temporary) signer.session_token = live(signer.name, Part::kSessionToken);
    // check_secrets() has seen to it that they are there.
    if (!key || secret.signing()->temporary != signer.session_token.has_value()) continue;
    signer.secret_key = *key;
    signers_.push_back(std::move(signer));
  }
}

Result<std::shared_ptr<const SecretRules>> SecretRules::create(std::vector<SecretEntry> entries) {
  // Of the proxy's password no request knows.
  std::erase_if(entries,
                [](const SecretEntry& entry) { return policy::is_proxy_password(entry.rule); });
  // Of credentials whose parts a new policy has no more, some may be left.
  std::vector<policy::SecretRule> rules;
  std::set<std::string_view> names;
  for (const SecretEntry& entry : entries) {
    if (!names.insert(entry.rule.name).second)
      return fail(Error::invalid("secrets." + entry.rule.name +
                                 ": found the name twice; allowed is each name once"));
    if (!entry.revoked) {
      rules.push_back(entry.rule);
    } else {
      TRY(policy::check_secret(entry.rule));
    }
  }
  TRY(policy::check_secrets(rules));

  std::shared_ptr<SecretRules> made(new SecretRules());
  std::vector<SharedSecret> values;
  for (SecretEntry& entry : entries) {
    std::vector<SharedSecret> own = entry.old_values;
    if (entry.value) own.push_back(entry.value);
    const std::string name = entry.rule.name;
    auto secret = Secret::create(std::move(entry));
    if (!secret) return fail(std::move(secret).error().with("secret " + name));
    if (!secret->scrubs()) own.clear();
    for (SharedSecret& value : own) {
      values.push_back(std::move(value));
      made->owners_.push_back(made->all_.size());
    }
    made->all_.push_back(std::move(secret).value());
  }
  made->find_signers();
  std::vector<std::string_view> value_texts, placeholder_texts;
  for (const SharedSecret& value : values) value_texts.push_back(value->bytes());
  for (const Secret& secret : made->all_) placeholder_texts.push_back(secret.placeholder());
  TRY(check_apart(made->all_, value_texts));
  TRY_ASSIGN(made->placeholders_, SearchedTexts::create(placeholder_texts));
  TRY_ASSIGN(made->values_, SearchedTexts::create(value_texts));
  return made;
}

}  // namespace caisson::egress
