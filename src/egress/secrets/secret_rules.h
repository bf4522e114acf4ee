// The secrets of one sandbox with their rules, compiled: what the gateway asks for each request and
// each answer.
//
// A snapshot: immutable, shared by every connection that was begun with it. A new value, a
// revocation or another rule is another snapshot; the placeholder stays, and so does the old value
// among what is taken out of answers. Values are shared between snapshots and wiped with the last
// of them. Nothing here prints one. Pure, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <caisson/secrets.h>

#include "base/error.h"
#include "base/secret.h"
#include "base/time_text.h"
#include "egress/secrets/form_search.h"
#include "policy/host_name.h"

namespace caisson::egress {

inline constexpr std::size_t kMostOldValues = 8;

// Owners: the snapshots that know it, and whoever fetched it.
using SharedSecret = std::shared_ptr<const SecretValue>;

struct SecretEntry {
  policy::SecretRule rule;
  // What the sandbox has (make_placeholder()); one that is injected has one too, which nobody
  // gets: it takes the value's place in answers.
  std::string placeholder;
  SharedSecret value;  // null: there is none now (its source failed, or it has ended)
  // Of the value; nullopt: none. Whoever holds the entry sees to it.
  std::optional<WallTime> expires = std::nullopt;
  // Of earlier snapshots, at most kMostOldValues: answers may still have them.
  std::vector<SharedSecret> old_values;
  // The placeholder stays known, and every request with it is refused.
  bool revoked = false;
};

// Another value until that time, or none (null). Answers may still have the one before.
void replace_value(SecretEntry& entry, SharedSecret value, std::optional<WallTime> expires);
// Values whose time is over are none from now on. Whether there were any.
bool drop_ended_values(std::vector<SecretEntry>& entries, WallTime now);

// One secret's.
class Secret {
 public:
  const std::string& name() const { return rule_.name; }
  const std::string& placeholder() const { return placeholder_; }
  policy::OnSecretViolation on_violation() const { return rule_.on_violation; }
  bool revoked() const { return revoked_; }
  std::uint32_t max_occurrences() const { return rule_.max_occurrences; }
  const std::optional<policy::SecretInjection>& injection() const { return rule_.inject; }
  // Whether answers are to be without the value.
  bool scrubs() const { return !rule_.inject || rule_.inject->scrub; }
  // Of a part of credentials that sign, whose placeholder may stand nowhere else.
  const std::optional<policy::SecretSigning>& signing() const { return rule_.signing; }
  // Null: there is none.
  const SharedSecret& value() const { return value_; }

  // Whether the value may go to this host.
  bool serves(const policy::Host& host) const;
  // Whether this host may see the placeholder as it is.
  bool passes(const policy::Host& host) const;

  // Where the placeholder becomes the value. Names of headers in any case.
  bool in_header(std::string_view name) const;
  bool in_basic(policy::SecretPlace::Half half) const;
  bool in_path() const;
  bool in_query(std::string_view name) const;
  bool in_form(std::string_view name) const;
  // Its JSON pointers, as they are written and as words.
  struct Pointer {
    std::string text;
    std::vector<std::string> words;
  };
  const std::vector<Pointer>& pointers() const { return pointers_; }
  // Whether it may be in a form, and so in a body of that kind.
  bool in_some_form() const;

 private:
  friend class SecretRules;
  static Result<Secret> create(SecretEntry entry);
  bool has_place(policy::SecretPlace::Kind kind, std::string_view name) const;

  policy::SecretRule rule_;
  std::string placeholder_;
  SharedSecret value_;
  bool revoked_ = false;
  std::vector<policy::HostPattern> hosts_, passthrough_;
  std::vector<Pointer> pointers_;
};

class SecretRules {
 public:
  // Without the proxy's password (policy/upstream_proxy.h), which is none of theirs.
  // Error: invalid_argument with the secret's name for what check_secrets(), check_secret_value()
  // or is_placeholder() refuses, for a placeholder that is within another or within a value, and
  // for too many old values; resource_exhausted where the values are too long in all.
  static Result<std::shared_ptr<const SecretRules>> create(std::vector<SecretEntry> entries);
  // As that, without the oldest of the old values where all are too long.
  static Result<std::shared_ptr<const SecretRules>> create_fitting(
      std::vector<SecretEntry>& entries);

  const std::vector<Secret>& all() const { return all_; }
  // Of all of them, by their place in all().
  const SearchedTexts& placeholders() const { return placeholders_; }
  // The values, with old ones, that answers are to be without.
  const SearchedTexts& values() const { return values_; }
  // Credentials that sign, and are not revoked: their parts' places in all().
  struct Signer {
    std::string name;
    std::size_t access_key = 0, secret_key = 0;
    std::optional<std::size_t> session_token;
  };
  const std::vector<Signer>& signers() const { return signers_; }
  const Secret& secret_of_value(std::size_t text) const { return all_[owners_[text]]; }

 private:
  SecretRules() = default;
  void find_signers();

  std::vector<Secret> all_;
  std::vector<Signer> signers_;
  SearchedTexts placeholders_, values_;
  std::vector<std::size_t> owners_;  // of the values
};

}  // namespace caisson::egress
