#include "egress/audit_entry.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/json.h"
#include "base/sha256.h"
#include "base/time_text.h"
#include "egress/audit_chain.h"
#include "egress/reasons.h"

namespace caisson::egress {
namespace {

constexpr std::string_view kHashKey = R"(,"hash":")";
constexpr std::string_view kEnd = "\"}";
constexpr std::size_t kHashDigits = 64;
// A record has a few dozen members, one of them a list of the secrets' uses.
constexpr std::size_t kMostValues = 64 + 4 * kMostAuditSecrets;
constexpr std::size_t kMostDepth = 3;

struct TextField {
  std::string_view key;
  std::string AuditEntry::* value;
};
constexpr auto kTexts = std::to_array<TextField>({
    {"ts", &AuditEntry::time},
    {"sandbox", &AuditEntry::sandbox},
    {"kind", &AuditEntry::kind},
    {"rule", &AuditEntry::rule},
    {"reason", &AuditEntry::reason},
    {"host", &AuditEntry::host},
    {"dst", &AuditEntry::destination},
    {"upstream", &AuditEntry::upstream},
    {"method", &AuditEntry::method},
    {"path", &AuditEntry::path},
    {"detail", &AuditEntry::detail},
    {"torn_sha256", &AuditEntry::torn_sha256},
    {"chain", &AuditEntry::chain},
    {"before", &AuditEntry::before},
    {"hash", &AuditEntry::hash},
});

struct NumberField {
  std::string_view key;
  std::uint64_t AuditEntry::* value;
};
constexpr auto kNumbers = std::to_array<NumberField>({
    {"seq", &AuditEntry::sequence},
    {"rev", &AuditEntry::revision},
    {"port", &AuditEntry::port},
    {"status", &AuditEntry::status},
    {"bytes_up", &AuditEntry::bytes_up},
    {"bytes_down", &AuditEntry::bytes_down},
    {"ms", &AuditEntry::milliseconds},
    {"lost", &AuditEntry::lost},
    {"torn", &AuditEntry::torn},
});

Error wrong(std::string_view key, std::string_view allowed) {
  return Error::invalid(std::string(key) + ": allowed is " + std::string(allowed));
}

Status read_members(const json::Value& line, AuditEntry& entry) {
  for (const TextField& field : kTexts) {
    const json::Value* value = line.find(field.key);
    if (value == nullptr) continue;
    if (value->as_string() == nullptr) return fail(wrong(field.key, "a text"));
    entry.*field.value = *value->as_string();
  }
  for (const NumberField& field : kNumbers) {
    const json::Value* value = line.find(field.key);
    if (value == nullptr) continue;
    const std::int64_t* number = value->as_integer();
    if (number == nullptr || *number < 0) return fail(wrong(field.key, "a whole number"));
    entry.*field.value = static_cast<std::uint64_t>(*number);
  }
  return {};
}

bool is_plain(const json::Value& value) {
  return value.as_object() == nullptr && value.as_array() == nullptr;
}

// Nothing has parts but the list of the secrets' uses, whose parts have none.
Status check_parts(const json::Value& line) {
  for (const json::Member& member : *line.as_object()) {
    if (member.key != "secrets") {
      if (!is_plain(member.value)) return fail(wrong(member.key, "a text, a number or a truth"));
      continue;
    }
    const json::Value::Array* const uses = member.value.as_array();
    const bool right = uses != nullptr && uses->size() <= kMostAuditSecrets &&
                       std::ranges::all_of(*uses, [](const json::Value& use) {
                         return use.as_object() != nullptr &&
                                std::ranges::all_of(*use.as_object(), [](const json::Member& part) {
                                  return is_plain(part.value);
                                });
                       });
    if (!right) return fail(wrong(member.key, "a list of the uses of secrets"));
  }
  return {};
}

std::string text_of(const json::Value& use, std::string_view key) {
  const json::Value* const value = use.find(key);
  return value == nullptr || value->as_string() == nullptr ? "" : *value->as_string();
}

// After check_parts().
void read_secrets(const json::Value& line, AuditEntry& entry) {
  const json::Value* const uses = line.find("secrets");
  if (uses == nullptr) return;
  for (const json::Value& use : *uses->as_array())
    entry.secrets.push_back(text_of(use, "name") + " in " + text_of(use, "where"));
}

Status check_members(const json::Value& line, AuditEntry& entry) {
  const json::Value* version = line.find("v");
  if (version == nullptr || *version != json::Value(2)) return fail(wrong("v", "2"));
  if (entry.sequence == 0 || entry.sequence > kMostAuditSequence)
    return fail(wrong("seq", "a number from 1 to 2^48 - 1"));
  if (entry.kind.empty()) return fail(wrong("kind", "a word"));
  if (!parse_time(entry.time)) return fail(wrong("ts", "a time"));
  if ((entry.torn > 0) != is_sha256(entry.torn_sha256))
    return fail(wrong("torn_sha256", "a SHA-256 beside torn"));
  if (!entry.chain.empty() && !is_audit_chain_id(entry.chain))
    return fail(wrong("chain", "32 hexadecimal digits"));
  const bool goes_on = entry.kind == "segment" || entry.kind == "cut";
  if (goes_on && entry.before.empty()) return fail(wrong("before", "a SHA-256"));
  if (!entry.before.empty() && !is_sha256(entry.before)) return fail(wrong("before", "a SHA-256"));
  const json::Value* decision = line.find("decision");
  if (decision == nullptr) return {};
  entry.decides = true;
  entry.allowed = *decision == json::Value("allow");
  if (!entry.allowed && *decision != json::Value("deny"))
    return fail(wrong("decision", "allow or deny"));
  return {};
}

// Neither lines nor a terminal can be played with.
std::string plain(std::string_view text) {
  std::string shown;
  for (const char c : text) shown += c >= 0x20 && c < 0x7f ? c : '?';
  return shown;
}

std::string why(const AuditEntry& entry) {
  const std::string_view meaning = meaning_of(entry.reason);
  std::string text(meaning.empty() ? entry.reason : meaning);
  if (!entry.rule.empty())
    text += (entry.allowed || entry.reason == "deny_rule" ? " (" : " (the nearest is ") +
            entry.rule + ")";
  if (!entry.detail.empty()) text += (text.empty() ? "" : "; ") + entry.detail;
  return text;
}

}  // namespace

std::string AuditEntry::target() const {
  std::string text = host.empty() ? destination : host;
  if (!host.empty() && port != 0) text += ":" + std::to_string(port);
  if (!method.empty()) text = method + " " + text + path;
  return text;
}

Result<AuditEntry> parse_audit_line(std::string_view line) {
  constexpr std::string_view kAllowed =
      "a record: {...} that ends with \"hash\" and 64 hexadecimal digits";
  if (line.size() > kMostAuditLine)
    return fail(Error::invalid("it is longer than " + std::to_string(kMostAuditLine) + " bytes"));
  const std::size_t tail = kHashKey.size() + kHashDigits + kEnd.size();
  if (line.size() <= tail || !line.ends_with(kEnd) ||
      line.substr(line.size() - tail, kHashKey.size()) != kHashKey)
    return fail(Error::invalid("found is no record; allowed is " + std::string(kAllowed)));
  TRY_ASSIGN(
      const json::Value value,
      json::parse(line, {.bytes = kMostAuditLine, .depth = kMostDepth, .values = kMostValues}));
  if (value.as_object() == nullptr)
    return fail(Error::invalid("found is no object; allowed is " + std::string(kAllowed)));
  AuditEntry entry{.hashed = line.size() - tail};
  TRY(check_parts(value));
  TRY(read_members(value, entry));
  read_secrets(value, entry);
  TRY(check_members(value, entry));
  // The same digits as those at the end: no escape in them, and no second key of that name.
  if (!is_sha256(entry.hash) || entry.hash != line.substr(entry.hashed + kHashKey.size(), 64))
    return fail(wrong("hash", "64 hexadecimal digits"));
  return entry;
}

std::string audit_sentence(const AuditEntry& entry) {
  std::string text = std::to_string(entry.sequence) + " " + entry.time;
  if (!entry.sandbox.empty()) text += " " + entry.sandbox;
  text += entry.decides ? (entry.allowed ? " allow " : " deny ") : " ";
  text += entry.kind;
  if (const std::string target = entry.target(); !target.empty()) text += " " + target;
  if (const std::string reason = why(entry); !reason.empty()) text += ": " + reason;
  if (entry.status != 0) text += ", status " + std::to_string(entry.status);
  for (const std::string& secret : entry.secrets) text += ", secret " + secret;
  if (entry.bytes_up != 0 || entry.bytes_down != 0)
    text += ", " + std::to_string(entry.bytes_up) + " bytes up, " +
            std::to_string(entry.bytes_down) + " down";
  if (entry.lost != 0) text += "; " + std::to_string(entry.lost) + " records before it were lost";
  if (entry.torn != 0)
    text += "; the " + std::to_string(entry.torn) + " bytes before it were cut off";
  return plain(text);
}

}  // namespace caisson::egress
