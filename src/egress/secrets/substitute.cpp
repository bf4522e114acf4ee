#include "egress/secrets/substitute.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/encoding.h"
#include "base/guards.h"
#include "egress/secrets/decoding.h"
#include "egress/secrets/json_span.h"
#include "egress/secrets/placeholder.h"
#include "http/text.h"
#include "policy/url_path.h"

namespace caisson::egress {
namespace {

using Half = policy::SecretPlace::Half;

constexpr std::size_t kMostWhere = 64;

std::string lowered(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), http::lower);
  return lower;
}

std::string where_of_header(std::string_view name) {
  return "header:" + lowered(name.substr(0, kMostWhere));
}

SecretViolation violation_of(const Secret& secret, std::string_view where, SecretFault fault) {
  return {secret.name(), std::string(where), fault, secret.on_violation()};
}

// What the first placeholder that a search found makes of the message; nullopt: it may pass.
std::optional<SecretViolation> judge_found(const SecretRules& rules,
                                           const std::vector<FoundForm>& found,
                                           const policy::Host& host, Channel channel,
                                           std::string_view where) {
  if (guard_off(Guard::kSecretSearch)) return std::nullopt;
  for (const FoundForm& match : found) {
    const Secret& secret = rules.all()[match.text];
    if (secret.passes(host)) continue;
    return violation_of(secret, where,
                        fault_of(secret, host, channel).value_or(SecretFault::kPlace));
  }
  return std::nullopt;
}

// The media type in small letters without parameters; empty: none, or more than one.
std::string media_type(const http::Headers& headers) {
  std::string type;
  for (const auto& [name, value] : headers.all()) {
    if (!http::same_name(name, "content-type")) continue;
    if (!type.empty()) return "";
    type = lowered(http::trimmed(std::string_view(value).substr(0, value.find(';'))));
  }
  return type;
}

bool is_json(std::string_view type) {
  return type == "application/json" ||
         (type.starts_with("application/") && type.ends_with("+json"));
}

bool is_form(std::string_view type) {
  return type == "application/x-www-form-urlencoded";
}

bool is_encoded(const http::Headers& headers) {
  return std::ranges::any_of(headers.all(), [](const auto& header) {
    return http::same_name(header.first, "content-encoding") &&
           !http::same_name(http::trimmed(header.second), "identity");
  });
}

bool has_body(const http::Headers& headers) {
  return headers.has("transfer-encoding") || headers.get("content-length").value_or("0") != "0";
}

bool is_trace(std::string_view method) {
  return http::same_name(method, "trace") || http::same_name(method, "track");
}

std::string form_decoded(std::string_view text) {
  std::string spaced(text);
  std::ranges::replace(spaced, '+', ' ');
  return decode(spaced, Decoding::kPercent).text;
}

// With the padding that some clients leave away.
std::optional<std::string> basic_decoded(std::string_view text) {
  std::string padded(text);
  while (padded.size() % 4 != 0) padded += '=';
  return base64_decode(padded);
}

using Encoded = std::optional<std::string>;

Encoded as_it_is(std::string_view value) {
  return std::string(value);
}
Encoded in_url(std::string_view value) {
  return percent_encode(value);
}
Encoded in_json(std::string_view value) {
  if (!is_utf8(value)) return std::nullopt;
  return json_escape(value);
}
// The first colon ends the name.
Encoded in_user_name(std::string_view value) {
  if (value.find(':') != std::string_view::npos) return std::nullopt;
  return std::string(value);
}

// One request on its way through. Each step says whether it went well; the first that does not has
// said why.
class Substitution {
 public:
  Substitution(const SecretRules& rules, OutgoingRequest request)
      : rules_(rules),
        request_(std::move(request)),
        counts_(rules.all().size()),
        search_(rules.placeholders()) {}

  bool run() {
    request_.head.headers.remove("proxy-authorization");
    return make_room() && target() && headers() && body() && inject() && nothing_left() &&
           no_trace() && finish_head();
  }

  PreparedRequest take() {
    return {std::move(request_.head), std::move(request_.body), std::move(used_)};
  }
  SecretViolation take_violation() { return std::move(violation_); }

 private:
  http::Headers& all_headers() { return request_.head.headers; }

  bool refuse(SecretViolation violation) {
    violation_ = std::move(violation);
    return false;
  }
  bool refuse(const Secret& secret, std::string_view where, SecretFault fault) {
    return refuse(violation_of(secret, where, fault));
  }

  bool count(std::size_t index, std::string_view where) {
    const Secret& secret = rules_.all()[index];
    if (++counts_[index] > secret.max_occurrences() && !guard_off(Guard::kSecretOccurrences))
      return refuse(secret, where, SecretFault::kOccurrences);
    const auto use = std::ranges::find_if(
        used_, [&](const SecretUse& u) { return u.secret == secret.name() && u.where == where; });
    if (use == used_.end()) {
      used_.push_back({secret.name(), std::string(where), 1});
    } else {
      ++use->count;
    }
    return true;
  }

  // The values in place of the placeholders in one part of the request.
  template <typename Allowed>
  bool put_in(std::string& text, Decoding decoding, std::string_view where, Allowed allowed,
              Encoded (*encode)(std::string_view)) {
    const DecodedText decoded = decode(text, decoding);
    const ManyPatterns& placeholders = rules_.placeholders().plain();
    std::string made;
    std::size_t done = 0;
    for (auto match = placeholders.find(decoded.text); match;
         match = placeholders.find(decoded.text, match->end)) {
      const Secret& secret = rules_.all()[match->pattern];
      if (!allowed(secret)) continue;
      std::optional<SecretFault> fault = fault_of(secret, request_.host, request_.channel);
      if (fault && secret.passes(request_.host)) continue;
      if (!fault && !secret.value()) fault = SecretFault::kNoValue;
      if (fault) return refuse(secret, where, *fault);
      const Encoded value = encode(secret.value()->bytes());
      if (!value) return refuse(secret, where, SecretFault::kUnfit);
      if (!count(match->pattern, where)) return false;
      const std::size_t begin = decoded.begins[match->begin];
      made.append(text, done, begin - done).append(*value);
      done = decoded.ends[match->end - 1];
    }
    if (done == 0) return true;
    made.append(text, done);
    text = std::move(made);
    return true;
  }

  // Parameters of a query or fields of a form.
  template <typename Allowed>
  bool fields(std::string& text, std::string_view kind, Allowed allowed) {
    std::string made;
    for (std::size_t at = 0; at <= text.size();) {
      const std::size_t end = std::min(text.find('&', at), text.size());
      std::string field = text.substr(at, end - at);
      const std::size_t equals = field.find('=');
      // No shorter value holds a placeholder.
      if (equals != std::string::npos && field.size() - equals > kLeastPlaceholder) {
        const std::string name = form_decoded(std::string_view(field).substr(0, equals));
        std::string value = field.substr(equals + 1);
        const auto here = [&](const Secret& secret) { return allowed(secret, name); };
        // A name that no rule has is nowhere shown.
        if (!put_in(value, Decoding::kPercent, std::string(kind) + ":" + name, here, in_url))
          return false;
        field.replace(equals + 1, std::string::npos, value);
      }
      made += field;
      if (end < text.size()) made += '&';
      at = end + 1;
    }
    text = std::move(made);
    return true;
  }

  bool target() {
    std::string& target = request_.head.target;
    const std::size_t question = std::min(target.find('?'), target.size());
    std::string path = target.substr(0, question), query = target.substr(question);
    if (!put_in(
            path, Decoding::kPercent, "path", [](const Secret& s) { return s.in_path(); }, in_url))
      return false;
    if (!query.empty()) {
      std::string parameters = query.substr(1);
      if (!fields(parameters, "query", [](const Secret& secret, const std::string& name) {
            return secret.in_query(name);
          }))
        return false;
      query.replace(1, std::string::npos, parameters);
    }
    if (used_.empty()) return true;
    target = path + query;
    // The path that the policy judged, but for the value: one that hides a slash, a dot segment or
    // an escape, or makes the target too long, is sent nowhere.
    const auto canonical = policy::canonical_target(target);
    if (canonical && canonical->text() == target) return true;
    return refuse_unfit_target();
  }

  bool refuse_unfit_target() {
    const SecretUse use = used_.front();
    const auto secret = std::ranges::find(rules_.all(), use.secret, &Secret::name);
    return refuse(*secret, use.where, SecretFault::kUnfit);
  }

  bool headers() {
    http::Headers made;
    for (const auto& header : all_headers().all()) {
      const std::string& name = header.first;
      std::string changed = header.second;
      if (http::same_name(name, "authorization") && !basic(changed)) return false;
      const auto here = [&](const Secret& secret) { return secret.in_header(name); };
      if (!put_in(changed, Decoding::kNone, where_of_header(name), here, as_it_is)) return false;
      made.add(name, changed);
    }
    all_headers() = std::move(made);
    return true;
  }

  // Where it is one, `Basic BASE64` with the values in both halves.
  bool basic(std::string& value) {
    const std::size_t space = value.find(' ');
    if (space == std::string::npos || !http::same_name(value.substr(0, space), "basic"))
      return true;
    const auto text = basic_decoded(http::trimmed(std::string_view(value).substr(space)));
    if (!text) return true;
    const std::size_t colon = text->find(':');
    if (colon == std::string::npos) return true;
    std::string user = text->substr(0, colon), password = text->substr(colon + 1);
    const std::size_t before = used_.size();
    const auto in = [](Half half) {
      return [half](const Secret& secret) { return secret.in_basic(half); };
    };
    if (!put_in(user, Decoding::kNone, "basic:user", in(Half::kUser), in_user_name) ||
        !put_in(password, Decoding::kNone, "basic:password", in(Half::kPassword), as_it_is))
      return false;
    if (used_.size() != before) value = "Basic " + base64_encode(user + ":" + password);
    return true;
  }

  bool body() {
    if (!request_.body) return true;
    const std::optional<std::size_t> found = first_in(*request_.body);
    // A body without a placeholder needs not even be what its type says.
    if (found && !is_encoded(all_headers())) {
      const std::string type = media_type(all_headers());
      if (is_json(type) && !json(*request_.body, rules_.all()[*found])) return false;
      if (is_form(type) &&
          !fields(*request_.body, "form", [](const Secret& secret, const std::string& name) {
            return secret.in_form(name);
          }))
        return false;
    }
    all_headers().remove("transfer-encoding");
    if (!guard_off(Guard::kSecretLength))
      all_headers().set("Content-Length", std::to_string(request_.body->size()));
    return true;
  }

  // The first secret with a placeholder in a text that does not simply pass.
  std::optional<std::size_t> first_in(std::string_view text) {
    for (const FoundForm& match : search(text)) {
      if (!rules_.all()[match.text].passes(request_.host) ||
          rules_.all()[match.text].serves(request_.host))
        return match.text;
    }
    return std::nullopt;
  }

  std::vector<FoundForm> search(std::string_view text) {
    search_.reset();
    search_.feed(text);
    search_.finish();
    return search_.take();
  }

  bool json(std::string& text, const Secret& found) {
    std::vector<std::vector<std::string>> pointers;
    std::vector<std::pair<const Secret*, std::string_view>> owners;
    for (const Secret& secret : rules_.all()) {
      // The others are found afterwards.
      if (!secret.serves(request_.host)) continue;
      for (const Secret::Pointer& pointer : secret.pointers()) {
        pointers.push_back(pointer.words);
        owners.emplace_back(&secret, pointer.text);
      }
    }
    if (pointers.empty()) return true;
    const auto spans = find_json_strings(text, pointers);
    if (!spans && guard_off(Guard::kSecretMalformed)) return true;
    if (!spans) return refuse(found, "body", SecretFault::kMalformed);
    std::string made;
    std::size_t done = 0;
    for (std::size_t i = 0; i < spans->size();) {
      const JsonSpan& span = (*spans)[i];
      // Every pointer to this string.
      std::size_t last = i;
      while (last < spans->size() && (*spans)[last].begin == span.begin) ++last;
      const auto here = [&](const Secret& secret) {
        return std::any_of(spans->begin() + static_cast<std::ptrdiff_t>(i),
                           spans->begin() + static_cast<std::ptrdiff_t>(last),
                           [&](const JsonSpan& s) { return owners[s.pointer].first == &secret; });
      };
      std::string content = text.substr(span.begin, span.end - span.begin);
      const std::string where = "json:" + std::string(owners[span.pointer].second);
      if (!put_in(content, Decoding::kJson, where, here, in_json)) return false;
      made.append(text, done, span.begin - done).append(content);
      done = span.end;
      i = last;
    }
    made.append(text, done);
    text = std::move(made);
    return true;
  }

  // What the client says of who it is gives way to what is set.
  bool make_room() {
    const auto wants_room = [&](const Secret& secret) {
      return is_injected(secret) && secret.scrubs();
    };
    if (!std::ranges::any_of(rules_.all(), wants_room)) return true;
    if (guard_off(Guard::kInjectMakesRoom)) return true;
    for (const std::string_view name : {"authorization", "cookie", "x-api-key"})
      all_headers().remove(name);
    return true;
  }

  bool is_injected(const Secret& secret) const {
    return secret.injection() && secret.serves(request_.host) &&
           request_.channel == Channel::kVerifiedTls;
  }

  bool inject() {
    std::vector<std::string> set;
    for (std::size_t i = 0; i < rules_.all().size(); ++i) {
      const Secret& secret = rules_.all()[i];
      if (!is_injected(secret)) continue;
      const std::string name = lowered(secret.injection()->header);
      const std::string where = where_of_header(name);
      if (secret.revoked()) return refuse(secret, where, SecretFault::kRevoked);
      if (!secret.value() && guard_off(Guard::kInjectNeedsValue)) continue;
      if (!secret.value()) return refuse(secret, where, SecretFault::kNoValue);
      if (std::ranges::find(set, name) != set.end())
        return refuse(secret, where, SecretFault::kTwice);
      set.push_back(name);
      std::string value = secret.injection()->prefix;
      value += secret.value()->bytes();
      all_headers().set(secret.injection()->header, value);
      if (!count(i, where)) return false;
    }
    return true;
  }

  bool nothing_left_in(std::string_view text, std::string_view where) {
    auto violation = judge_found(rules_, search(text), request_.host, request_.channel, where);
    return !violation || refuse(std::move(*violation));
  }

  bool nothing_left() {
    const std::string_view target = request_.head.target;
    const std::size_t question = std::min(target.find('?'), target.size());
    if (!nothing_left_in(request_.head.method, "method") ||
        !nothing_left_in(target.substr(0, question), "path") ||
        !nothing_left_in(target.substr(question), "query"))
      return false;
    for (const auto& [name, value] : all_headers().all()) {
      if (!nothing_left_in(name, "header name") || !nothing_left_in(value, where_of_header(name)))
        return false;
    }
    return !request_.body || nothing_left_in(*request_.body, "body");
  }

  bool no_trace() {
    if (used_.empty() || !is_trace(request_.head.method)) return true;
    const SecretUse use = used_.front();
    const auto secret = std::ranges::find(rules_.all(), use.secret, &Secret::name);
    return refuse(*secret, use.where, SecretFault::kTrace);
  }

  bool finish_head() {
    if (used_.empty()) return true;
    // A compressed answer would have to be decoded to be scrubbed.
    all_headers().set("Accept-Encoding", "identity").remove("max-forwards");
    return true;
  }

  const SecretRules& rules_;
  OutgoingRequest request_;
  std::vector<std::uint32_t> counts_;  // of uses, by secret
  std::vector<SecretUse> used_;
  FormSearch search_;
  SecretViolation violation_;
};

}  // namespace

std::optional<SecretFault> fault_of(const Secret& secret, const policy::Host& host,
                                    Channel channel) {
  if (secret.revoked()) return SecretFault::kRevoked;
  if (!secret.serves(host)) return SecretFault::kHost;
  if (channel != Channel::kVerifiedTls && !guard_off(Guard::kSecretPlaintext))
    return SecretFault::kPlaintext;
  return std::nullopt;
}

std::string_view to_string(SecretFault fault) {
  constexpr std::array<std::string_view, 15> kNames = {
      "revoked",   "host",      "plaintext",      "place",        "occurrences",
      "no_value",  "unfit",     "malformed_body", "encoded_body", "trace",
      "set_twice", "signature", "scope",          "signing_form", "signed_body"};
  return kNames[static_cast<std::size_t>(fault)];
}

std::string SecretViolation::sentence() const {
  constexpr std::array<std::string_view, 15> kReasons = {
      "it has been revoked",
      "it is not for this host",
      "it goes out over TLS with a verified server alone",
      "it may not stand there",
      "it stands in the request more often than its rule allows",
      "it has no value at the moment",
      "its value cannot stand there",
      "the body is not what its Content-Type says",
      "a body with a Content-Encoding could hide it",
      "the method would have the server send it back",
      "another secret sets the same header",
      "its signature is not one that a program makes with what the sandbox has",
      "it is signed for what the credentials are not for",
      "it is signed in a way in which nothing is signed anew",
      "its body is not the one that was signed"};
  return "the secret " + secret + " (" + where +
         ") keeps the request back: " + std::string(kReasons[static_cast<std::size_t>(fault)]) +
         (detail.empty() ? "" : ": " + detail);
}

Judged<BodyNeed> body_need(const SecretRules& rules, const policy::Host& host,
                           const http::RequestHead& head) {
  const auto can_leak = [&](const Secret& secret) { return !secret.passes(host); };
  if (!has_body(head.headers)) return BodyNeed::kNothing;
  const std::string type = media_type(head.headers);
  const bool json = is_json(type), form = is_form(type);
  const bool encoded = is_encoded(head.headers);
  for (const Secret& secret : rules.all()) {
    if (secret.revoked() || !secret.serves(host)) continue;
    const bool in_body = !secret.pointers().empty() || secret.in_some_form();
    if (encoded && in_body)
      return std::unexpected(violation_of(secret, "body", SecretFault::kEncodedBody));
    if ((json && !secret.pointers().empty()) || (form && secret.in_some_form()))
      return BodyNeed::kWhole;
  }
  if (std::ranges::none_of(rules.all(), can_leak)) return BodyNeed::kNothing;
  return encoded ? BodyNeed::kCheckDecoded : BodyNeed::kCheck;
}

Judged<PreparedRequest> prepare_request(const SecretRules& rules, OutgoingRequest request) {
  Substitution substitution(rules, std::move(request));
  if (!substitution.run()) return std::unexpected(substitution.take_violation());
  return substitution.take();
}

LeakCheck::LeakCheck(std::shared_ptr<const SecretRules> rules, policy::Host host, Channel channel)
    : rules_(std::move(rules)),
      host_(std::move(host)),
      channel_(channel),
      search_(rules_->placeholders()) {}

Judged<std::string> LeakCheck::feed(std::string_view piece) {
  if (!violation_) {
    held_ += piece;
    search_.feed(piece);
  }
  return released();
}

std::string LeakCheck::pause() {
  if (violation_ || held_.size() > kMostEarly) return "";
  return held_.substr(std::exchange(early_, held_.size()));
}

Judged<std::string> LeakCheck::finish() {
  if (!violation_) search_.finish();
  return released();
}

Judged<std::string> LeakCheck::released() {
  if (!violation_) violation_ = judge_found(*rules_, search_.take(), host_, channel_, "body");
  if (violation_) {
    held_.clear();
    return std::unexpected(*violation_);
  }
  const auto size = static_cast<std::size_t>(search_.decided() - base_);
  const std::size_t gone = std::min(early_, size);
  std::string out = held_.substr(gone, size - gone);
  held_.erase(0, size);
  base_ += size;
  early_ -= gone;
  return out;
}

}  // namespace caisson::egress
