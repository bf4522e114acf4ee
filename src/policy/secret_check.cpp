#include "policy/secret_check.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/guards.h"
#include "policy/complain.h"
#include "policy/host_name.h"

namespace caisson::policy {
namespace {

constexpr std::size_t kMaxName = 64;
constexpr std::size_t kMaxPrefix = 64;
constexpr std::size_t kMaxPlaceName = 256;
constexpr std::size_t kMaxCommandWords = 64;
constexpr std::size_t kMaxText = 4096;
constexpr std::uint32_t kMaxOccurrences = 64;
constexpr std::uint64_t kMaxTtl = 365ull * 24 * 3600 * 1000;

constexpr std::string_view kAllowedHeader =
    "the name of a header that servers do not usually repeat in what they answer, such as "
    "authorization";

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_letter_or_digit(char c) {
  return (lower(c) >= 'a' && lower(c) <= 'z') || (c >= '0' && c <= '9');
}

bool is_made_of(std::string_view text, std::string_view others) {
  return std::ranges::all_of(text, [&](char c) {
    return is_letter_or_digit(c) || others.find(c) != std::string_view::npos;
  });
}

bool has_control(std::string_view text) {
  return std::ranges::any_of(
      text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kMaxName && is_made_of(text, "-._");
}

bool is_variable(std::string_view text) {
  return !text.empty() && text.size() <= kMaxPlaceName && is_made_of(text, "_") &&
         !(text[0] >= '0' && text[0] <= '9');
}

bool is_token(std::string_view text) {
  return !text.empty() && text.size() <= kMaxName && is_made_of(text, "!#$%&'*+-.^_`|~");
}

std::string at(const std::string& path, std::size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

Status check_text(const std::string& text, const std::string& path, std::string_view allowed) {
  if (!text.empty() && text.size() <= kMaxText && !has_control(text)) return {};
  return fail(wrong(path, quote(text), allowed));
}

Status check_shape(const SecretShape& shape, const std::string& path) {
  if (shape.kind > SecretShape::Kind::kNone)
    return fail(wrong(path, "another kind", "length, prefix:TEXT, jwt, aws or none"));
  if (shape.kind != SecretShape::Kind::kPrefix) return {};
  if (!shape.prefix.empty() && shape.prefix.size() <= kMaxPrefix &&
      is_made_of(shape.prefix, "-._~"))
    return {};
  return fail(wrong(path, quote(shape.prefix),
                    "prefix: and 1 to 64 letters, digits, '-', '.', '_' and '~'"));
}

Status check_hosts(const std::vector<std::string>& hosts, const std::string& path) {
  if (hosts.size() > kMaxSecretItems)
    return fail(wrong(path, std::to_string(hosts.size()) + " hosts", "at most 64"));
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    auto pattern = HostPattern::parse(hosts[i]);
    if (!pattern) return fail(std::move(pattern).error().with(at(path, i)));
  }
  return {};
}

Status check_header(const std::string& name, const std::string& path) {
  if (!is_token(name)) return fail(wrong(path, quote(name), kAllowedHeader));
  std::string lowered = name;
  std::ranges::transform(lowered, lowered.begin(), lower);
  if (lowered == "cookie" || !is_repeated_header(lowered)) return {};
  return fail(wrong(path, quote(name), kAllowedHeader));
}

// Of a value that answers may have it is no matter who repeats it.
Status check_set_header(const std::string& name, const std::string& path) {
  constexpr std::array<std::string_view, 14> kOfTheMessage = {"host",
                                                              "connection",
                                                              "keep-alive",
                                                              "te",
                                                              "trailer",
                                                              "upgrade",
                                                              "expect",
                                                              "transfer-encoding",
                                                              "content-length",
                                                              "content-encoding",
                                                              "content-range",
                                                              "max-forwards",
                                                              "accept-encoding",
                                                              "range"};
  std::string lowered = name;
  std::ranges::transform(lowered, lowered.begin(), lower);
  const bool own = std::ranges::find(kOfTheMessage, lowered) != kOfTheMessage.end() ||
                   lowered.starts_with("proxy-") || lowered.starts_with("sec-websocket-");
  if (is_token(name) && !own) return {};
  return fail(wrong(path, quote(name), "a header that says nothing of the message's own form"));
}

Status check_place(const SecretPlace& place, const std::string& path) {
  if (place.half > SecretPlace::Half::kPassword)
    return fail(wrong(path, "another half", "any, user or password"));
  switch (place.kind) {
    case SecretPlace::Kind::kHeader:
      if (place.name == "*") return {};
      return check_header(place.name, path);
    case SecretPlace::Kind::kBasic:
    case SecretPlace::Kind::kPath:
      if (place.name.empty()) return {};
      return fail(wrong(path, quote(place.name), "no name for basic and path"));
    case SecretPlace::Kind::kQuery:
    case SecretPlace::Kind::kForm:
      if (!place.name.empty() && place.name.size() <= kMaxPlaceName && !has_control(place.name))
        return {};
      return fail(wrong(path, quote(place.name),
                        "a name of 1 to 256 characters without control characters"));
    case SecretPlace::Kind::kJson: {
      auto words = parse_json_pointer(place.name);
      if (!words) return fail(std::move(words).error().with(path));
      return {};
    }
  }
  return fail(wrong(path, "another kind", "header, basic, query, path, json or form"));
}

Status check_injection(const SecretRule& rule, const std::string& path) {
  const SecretRule fresh;
  if (!(rule.env.empty() && rule.shape == fresh.shape && rule.in.empty() &&
        rule.max_occurrences == fresh.max_occurrences && rule.passthrough.empty()))
    return fail(wrong(path, "inject beside what is about a placeholder",
                      "inject without env, shape, in, max_occurrences and passthrough"));
  // Of a place it means any header.
  if (rule.inject->header == "*")
    return fail(wrong(path + ".inject.header", "\"*\"", "the name of one header"));
  TRY(rule.inject->scrub ? check_header(rule.inject->header, path + ".inject.header")
                         : check_set_header(rule.inject->header, path + ".inject.header"));
  if (rule.inject->prefix.size() > kMaxPrefix || has_control(rule.inject->prefix))
    return fail(wrong(path + ".inject.prefix", quote(rule.inject->prefix),
                      "at most 64 characters without control characters"));
  return {};
}

std::string path_below(std::string_view path, const SecretRule& rule) {
  if (!rule.signing || rule.signing->part > SecretSigning::Part::kSessionToken)
    return key_below(path, rule.name);
  return key_below(path, document_name(rule)) + std::string(suffix_of(rule.signing->part));
}

bool is_scope_word(std::string_view text) {
  return !text.empty() && text.size() <= kMaxName && is_made_of(text, "-_");
}

Status check_scope(const std::vector<std::string>& words, const std::string& path,
                   std::string_view example) {
  if (words.empty() || words.size() > kMaxSecretItems)
    return fail(wrong(path, std::to_string(words.size()) + " of them",
                      "1 to 64 of those that requests may be signed for, such as [" +
                          std::string(example) + "]"));
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (is_scope_word(words[i])) continue;
    return fail(wrong(at(path, i), quote(words[i]), "1 to 64 letters, digits, '-' and '_'"));
  }
  return {};
}

// `path` is that of the part, `all` that of the credentials.
Status check_signing(const SecretRule& rule, const std::string& path, const std::string& all) {
  const SecretRule fresh;
  if (!(rule.shape == fresh.shape && rule.in.empty() && !rule.inject &&
        rule.max_occurrences == fresh.max_occurrences && rule.passthrough.empty()))
    return fail(wrong(all, "kind: sigv4 beside what is about a placeholder's place",
                      "kind: sigv4 without shape, in, max_occurrences, passthrough and inject"));
  if (!rule.name.ends_with(suffix_of(rule.signing->part)) || document_name(rule).empty())
    return fail(wrong(path, "a part of the name " + quote(rule.name),
                      "NAME" + std::string(suffix_of(rule.signing->part))));
  TRY(check_scope(rule.signing->services, all + ".services", "s3"));
  return check_scope(rule.signing->regions, all + ".regions", "eu-central-1");
}

// That the rule is in its place among the parts of its credentials, of which `before` are there.
Status check_order(const SecretRule& rule, std::span<const SecretRule> before,
                   std::span<const SecretRule> after, const std::string& path) {
  using Part = SecretSigning::Part;
  const auto goes_with = [&](const SecretRule& other, Part part) {
    return other.signing && other.signing->part == part &&
           document_name(other) == document_name(rule) && other.hosts == rule.hosts &&
           other.signing->temporary == rule.signing->temporary &&
           other.signing->services == rule.signing->services &&
           other.signing->regions == rule.signing->regions;
  };
  const auto misplaced = [&](std::string_view allowed) {
    return fail(wrong(path, "a part of credentials by itself", allowed));
  };
  constexpr std::string_view kAllowed =
      "an access key, its secret key and, of temporary credentials, its session token, one behind "
      "the other and for the same hosts, services and regions";
  switch (rule.signing->part) {
    case Part::kAccessKey:
      if (after.empty() || !goes_with(after[0], Part::kSecretKey)) return misplaced(kAllowed);
      return {};
    case Part::kSecretKey:
      if (before.empty() || !goes_with(before.back(), Part::kAccessKey)) return misplaced(kAllowed);
      if (rule.signing->temporary && (after.empty() || !goes_with(after[0], Part::kSessionToken)))
        return misplaced(kAllowed);
      return {};
    case Part::kSessionToken:
      if (!rule.signing->temporary || before.empty() || !goes_with(before.back(), Part::kSecretKey))
        return misplaced(kAllowed);
      return {};
  }
  return misplaced(kAllowed);
}

bool is_escaped_well(std::string_view word) {
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '~') continue;
    if (i + 1 == word.size() || (word[i + 1] != '0' && word[i + 1] != '1')) return false;
  }
  return true;
}

std::string unescaped(std::string_view word) {
  std::string text;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] == '~') {
      text += word[++i] == '1' ? '/' : '~';
    } else {
      text += word[i];
    }
  }
  return text;
}

}  // namespace

Status check_source(const SecretSource& source, const std::string& path) {
  switch (source.kind) {
    case SecretSource::Kind::kEnv:
      if (is_variable(source.text)) return {};
      return fail(wrong(path + ".env", quote(source.text), "the name of a variable"));
    case SecretSource::Kind::kFile:
      return check_text(source.text, path + ".file", "a path without control characters");
    case SecretSource::Kind::kVault:
      if (is_name(source.text)) return {};
      return fail(
          wrong(path + ".vault", quote(source.text), "1 to 64 letters, digits, '-', '.' and '_'"));
    case SecretSource::Kind::kFd:
      if (source.descriptor >= 3) return {};
      return fail(wrong(path + ".fd", "the number " + std::to_string(source.descriptor),
                        "an inherited descriptor, at least 3"));
    case SecretSource::Kind::kCommand:
      break;
    default:
      return fail(wrong(path, "another kind", "env, file, command, fd or vault"));
  }
  if (source.command.empty() || source.command.size() > kMaxCommandWords)
    return fail(wrong(path + ".command", std::to_string(source.command.size()) + " words",
                      "a program and its arguments, at most 64 words"));
  for (std::size_t i = 0; i < source.command.size(); ++i) {
    const std::string& word = source.command[i];
    // An argument may be empty; the program may not.
    if (i > 0 && word.empty()) continue;
    TRY(check_text(word, at(path + ".command", i), "a word without control characters"));
  }
  if (source.ttl_ms && (*source.ttl_ms < 1000 || *source.ttl_ms > kMaxTtl))
    return fail(wrong(path + ".ttl", std::to_string(*source.ttl_ms) + "ms", "1s to 365d"));
  return {};
}

std::string_view suffix_of(SecretSigning::Part part) {
  constexpr std::array<std::string_view, 3> kSuffixes = {".access_key", ".secret_key",
                                                         ".session_token"};
  return kSuffixes[static_cast<std::size_t>(part)];
}

std::string document_name(const SecretRule& rule) {
  if (!rule.signing) return rule.name;
  const std::size_t suffix = suffix_of(rule.signing->part).size();
  return rule.name.substr(0, rule.name.size() - std::min(suffix, rule.name.size()));
}

Status check_secret(const SecretRule& rule, std::string_view path) {
  const std::string below(path);
  if (!is_name(rule.name))
    return fail(
        wrong(below, "the name " + quote(rule.name), "1 to 64 letters, digits, '-', '.' and '_'"));
  if (!rule.env.empty() && !is_variable(rule.env))
    return fail(wrong(below + ".env", quote(rule.env), "the name of a variable"));
  if (rule.signing && rule.signing->part > SecretSigning::Part::kSessionToken)
    return fail(wrong(below, "another part", "an access key, a secret key or a session token"));
  // A document has the parts of credentials in one mapping: "secrets.aws.access_key.env".
  std::string all = below;
  if (rule.signing && all.ends_with(suffix_of(rule.signing->part)))
    all.resize(all.size() - suffix_of(rule.signing->part).size());
  TRY(check_source(rule.source, rule.signing ? below : below + ".source"));
  TRY(check_shape(rule.shape, below + ".shape"));
  if (rule.hosts.empty())
    return fail(wrong(all + ".hosts", "no host", "the hosts that may get the value"));
  TRY(check_hosts(rule.hosts, all + ".hosts"));
  TRY(check_hosts(rule.passthrough, below + ".passthrough"));
  if (rule.in.size() > kMaxSecretItems)
    return fail(wrong(below + ".in", std::to_string(rule.in.size()) + " places", "at most 64"));
  for (std::size_t i = 0; i < rule.in.size(); ++i)
    TRY(check_place(rule.in[i], at(below + ".in", i)));
  if (rule.max_occurrences == 0 || rule.max_occurrences > kMaxOccurrences)
    return fail(wrong(below + ".max_occurrences",
                      "the number " + std::to_string(rule.max_occurrences), "1 to 64"));
  if (rule.on_violation > OnSecretViolation::kTerminate)
    return fail(wrong(below + ".on_violation", "another word", "block or terminate"));
  if (rule.signing) return check_signing(rule, below, all);
  if (rule.inject) return check_injection(rule, below);
  return {};
}

Status check_secrets(std::span<const SecretRule> rules, std::string_view path) {
  if (rules.size() > kMaxSecrets)
    return fail(wrong(path, std::to_string(rules.size()) + " secrets", "at most 64"));
  std::set<std::string_view> names, variables;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const SecretRule& rule = rules[i];
    const std::string below = path_below(path, rule);
    TRY(check_secret(rule, below));
    if (rule.signing) TRY(check_order(rule, rules.first(i), rules.subspan(i + 1), below));
    if (!names.insert(rule.name).second)
      return fail(wrong(below, "the name twice", "each name once"));
    if (!rule.env.empty() && !variables.insert(rule.env).second)
      return fail(wrong(below + ".env", quote(rule.env) + ", which another secret has",
                        "a variable of its own"));
  }
  return {};
}

Result<std::vector<std::string>> parse_json_pointer(std::string_view text) {
  if (!text.starts_with('/') || text.size() > kMaxPlaceName || has_control(text) ||
      !is_escaped_well(text))
    return fail(Error::invalid(quote(text) +
                               " is no pointer into JSON; allowed is /KEY/KEY… of at most 256 "
                               "characters, in which ~1 is a slash and ~0 a tilde"));
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('/', 1), text.size());
    words.push_back(unescaped(text.substr(1, end - 1)));
    text.remove_prefix(end);
  }
  return words;
}

bool is_repeated_header(std::string_view name) {
  if (guard_off(Guard::kRepeatedHeaders)) return false;
  constexpr std::array<std::string_view, 27> kNames = {"user-agent",
                                                       "referer",
                                                       "origin",
                                                       "host",
                                                       "cookie",
                                                       "via",
                                                       "forwarded",
                                                       "x-request-id",
                                                       "traceparent",
                                                       "tracestate",
                                                       "range",
                                                       "connection",
                                                       "keep-alive",
                                                       "te",
                                                       "trailer",
                                                       "transfer-encoding",
                                                       "upgrade",
                                                       "expect",
                                                       "max-forwards",
                                                       "date",
                                                       "cache-control",
                                                       "pragma",
                                                       "x-correlation-id",
                                                       "proxy-authorization",
                                                       "proxy-authenticate",
                                                       "proxy-connection",
                                                       "from"};
  constexpr std::array<std::string_view, 5> kPrefixes = {"x-forwarded-", "accept", "sec-",
                                                         "content-", "if-"};
  std::string lowered(name);
  std::ranges::transform(lowered, lowered.begin(), lower);
  return std::ranges::find(kNames, lowered) != kNames.end() ||
         std::ranges::any_of(kPrefixes,
                             [&](std::string_view prefix) { return lowered.starts_with(prefix); });
}

}  // namespace caisson::policy
