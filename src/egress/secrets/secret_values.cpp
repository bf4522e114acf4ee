// The values of secrets as they come and go.
#include <algorithm>
#include <utility>

#include "base/guards.h"
#include "egress/secrets/secret_rules.h"

namespace caisson::egress {

void replace_value(SecretEntry& entry, SharedSecret value, std::optional<WallTime> expires) {
  const bool changed = entry.value && (!value || entry.value->bytes() != value->bytes());
  // What answers were allowed to have is not taken out of them.
  const bool open = entry.rule.inject && !entry.rule.inject->scrub;
  if (changed && !open) entry.old_values.push_back(entry.value);
  if (entry.old_values.size() > kMostOldValues) entry.old_values.erase(entry.old_values.begin());
  entry.value = std::move(value);
  entry.expires = expires;
}

bool drop_ended_values(std::vector<SecretEntry>& entries, WallTime now) {
  bool dropped = false;
  for (SecretEntry& entry : entries) {
    if (guard_off(Guard::kSecretEnds) || !entry.value || !entry.expires || *entry.expires > now)
      continue;
    replace_value(entry, nullptr, std::nullopt);
    dropped = true;
  }
  return dropped;
}

Result<std::shared_ptr<const SecretRules>> SecretRules::create_fitting(
    std::vector<SecretEntry>& entries) {
  const auto old_bytes = [](const SecretEntry& entry) {
    std::size_t bytes = 0;
    for (const SharedSecret& old : entry.old_values) bytes += old->bytes().size();
    return bytes;
  };
  for (;;) {
    auto made = create(entries);
    if (made.has_value() || made.error().code() != Code::kResourceExhausted) return made;
    const auto most = std::ranges::max_element(entries, {}, old_bytes);
    if (most == entries.end() || most->old_values.empty()) return made;
    most->old_values.erase(most->old_values.begin());
  }
}

}  // namespace caisson::egress
