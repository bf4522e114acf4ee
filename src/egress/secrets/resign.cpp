#include "egress/secrets/resign.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/guards.h"
#include "base/sha256.h"
#include "egress/secrets/decoding.h"
#include "http/text.h"
#include "policy/url_path.h"

namespace caisson::egress {
namespace {

constexpr std::string_view kAuthorization = "Authorization";
constexpr std::string_view kDate = "X-Amz-Date";
constexpr std::string_view kToken = "X-Amz-Security-Token";
constexpr std::string_view kPayload = "X-Amz-Content-Sha256";
// Where records say that it was.
constexpr std::string_view kWhere = "sigv4";

// Headers that a gateway makes anew for each connection.
bool is_framing(std::string_view name) {
  constexpr std::array<std::string_view, 10> kNames = {
      "connection", "content-length", "expect",  "keep-alive",        "proxy-connection",
      "te",         "trailer",        "upgrade", "transfer-encoding", "authorization"};
  return std::ranges::find(kNames, name) != kNames.end();
}

// Of which the path is not escaped a second time, and is not made shorter.
bool is_s3(std::string_view service) {
  constexpr std::array<std::string_view, 4> kNames = {"s3", "s3express", "s3-outposts",
                                                      "s3-object-lambda"};
  return std::ranges::find(kNames, service) != kNames.end();
}

struct SplitTarget {
  std::string_view path, query;  // the query without its question mark
};

// Of a target in origin form, or an absolute one.
SplitTarget split(std::string_view target) {
  if (const std::size_t scheme = target.find("://");
      scheme != std::string_view::npos && !target.starts_with('/')) {
    target.remove_prefix(scheme + 3);
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
  }
  const std::size_t question = std::min(target.find('?'), target.size());
  const std::string_view path = target.substr(0, question);
  return {.path = path.empty() ? "/" : path,
          .query = target.substr(std::min(question + 1, target.size()))};
}

std::string decoded(std::string_view text) {
  return decode(text, Decoding::kPercent).text;
}

std::string lowered(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(), http::lower);
  return lower;
}

// The value of the first parameter that is called so, in any case, decoded.
std::optional<std::string> parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::size_t end = std::min(query.find('&'), query.size());
    const std::string_view one = query.substr(0, end);
    const std::size_t equals = std::min(one.find('='), one.size());
    if (http::same_name(decoded(one.substr(0, equals)), name))
      return decoded(one.substr(std::min(equals + 1, one.size())));
    query.remove_prefix(std::min(end + 1, query.size()));
  }
  return std::nullopt;
}

std::string words(const std::vector<std::string>& all) {
  std::string text;
  for (const std::string& word : all) text += (text.empty() ? "" : ", ") + word;
  return text;
}

}  // namespace

Judged<std::optional<Resigning>> Resigning::begin(std::shared_ptr<const SecretRules> rules,
                                                  const policy::Host& host, Channel channel,
                                                  const http::RequestHead& head) {
  const std::string_view query = split(head.target).query;
  for (const SecretRules::Signer& signer : rules->signers()) {
    const std::string& access_key = rules->all()[signer.access_key].placeholder();
    const bool in_url =
        parameter(query, "X-Amz-Credential").value_or("").find(access_key) != std::string::npos;
    const bool in_header = std::ranges::any_of(head.headers.all(), [&](const auto& header) {
      return http::same_name(header.first, kAuthorization) &&
             header.second.starts_with(sigv4::kAnyAlgorithm) &&
             header.second.find(access_key) != std::string::npos;
    });
    if (!in_url && !in_header) continue;
    Resigning made(rules, signer);
    made.client_ = head;
    if (auto violation = made.read(host, channel)) return std::unexpected(std::move(*violation));
    return std::optional<Resigning>(std::move(made));
  }
  return std::optional<Resigning>();
}

SecretViolation Resigning::violation(SecretFault fault, std::string detail) const {
  return {.secret = signer_.name,
          .where = std::string(kWhere),
          .fault = fault,
          .consequence = part(signer_.access_key).on_violation(),
          .detail = std::move(detail)};
}

std::optional<SecretViolation> Resigning::read(const policy::Host& host, Channel channel) {
  if (const auto fault = fault_of(part(signer_.access_key), host, channel))
    return violation(*fault, "");
  const std::string_view query = split(client_.target).query;
  if (parameter(query, "X-Amz-Credential") || parameter(query, "X-Amz-Signature"))
    return violation(SecretFault::kSigningForm,
                     "the signature is in the URL; allowed is one in the header Authorization");
  for (const auto place : {std::optional(signer_.access_key), std::optional(signer_.secret_key),
                           signer_.session_token}) {
    if (place && !part(*place).value())
      return violation(SecretFault::kNoValue, part(*place).name());
  }
  if (auto refused = read_authorization()) return refused;
  if (auto refused = check_scope()) return refused;
  return read_payload();
}

std::optional<SecretViolation> Resigning::read_authorization() {
  std::vector<std::string_view> values;
  for (const auto& [name, value] : client_.headers.all()) {
    if (http::same_name(name, kAuthorization)) values.push_back(value);
  }
  if (values.size() != 1)
    return violation(SecretFault::kSignature, "there are several headers Authorization");
  const std::string_view algorithm = values[0].substr(0, values[0].find(' '));
  if (algorithm != sigv4::kAlgorithm)
    return violation(SecretFault::kSigningForm,
                     "the algorithm is not " + std::string(sigv4::kAlgorithm));
  auto read = sigv4::parse_authorization(values[0]);
  // The placeholder may stand anywhere in a header that is none.
  if (!read || read->access_key != part(signer_.access_key).placeholder())
    return violation(SecretFault::kSignature, "the header Authorization is malformed");
  authorization_ = std::move(*read);
  return std::nullopt;
}

std::optional<SecretViolation> Resigning::check_scope() const {
  if (guard_off(Guard::kSigV4Scope)) return std::nullopt;
  const policy::SecretSigning& signing = *part(signer_.access_key).signing();
  const auto outside = [&](std::string_view kind, const std::string& found,
                           const std::vector<std::string>& allowed) {
    return violation(SecretFault::kScope, "the " + std::string(kind) + " is " + found +
                                              "; allowed are " + words(allowed));
  };
  if (std::ranges::find(signing.services, authorization_.scope.service) == signing.services.end())
    return outside("service", authorization_.scope.service, signing.services);
  if (std::ranges::find(signing.regions, authorization_.scope.region) == signing.regions.end())
    return outside("region", authorization_.scope.region, signing.regions);
  return std::nullopt;
}

std::optional<SecretViolation> Resigning::read_payload() {
  std::size_t count = 0;
  for (const auto& [name, value] : client_.headers.all()) {
    if (!http::same_name(name, kPayload)) continue;
    ++count;
    payload_ = http::trimmed(value);
  }
  if (count == 0) return std::nullopt;
  chunked_ = payload_.starts_with("STREAMING-");
  if (count > 1)
    return violation(SecretFault::kSignature, "there are several headers " + std::string(kPayload));
  if (is_sha256(payload_)) {
    body_ = Body::kHashed;
  } else if (payload_ == "UNSIGNED-PAYLOAD" || payload_ == "STREAMING-UNSIGNED-PAYLOAD-TRAILER") {
    body_ = Body::kFree;
  } else {
    return violation(
        SecretFault::kSigningForm,
        "the header " + std::string(kPayload) +
            " says that the body's chunks are signed, or nothing that is known; allowed "
            "are a SHA-256, UNSIGNED-PAYLOAD and STREAMING-UNSIGNED-PAYLOAD-TRAILER");
  }
  return std::nullopt;
}

std::optional<SecretViolation> Resigning::check_body(std::string_view sha256) const {
  if (body_ != Body::kHashed || sha256 == payload_ || guard_off(Guard::kSigV4Body))
    return std::nullopt;
  return violation(SecretFault::kSignedBody,
                   "its SHA-256 is not that of the header " + std::string(kPayload));
}

SecretViolation Resigning::too_long() const {
  return violation(SecretFault::kSignedBody,
                   "it is longer than 1 MiB, and its SHA-256 is only known at its end; allowed is "
                   "one whose header " +
                       std::string(kPayload) + " says it");
}

void Resigning::strip(http::RequestHead& head) const {
  head.headers.remove(kAuthorization).remove(kDate).remove(kToken);
}

// A program with the placeholder of the secret key signed exactly this. Clients differ in how they
// escape what needs no escape; every way has the same meaning.
std::optional<SecretViolation> Resigning::verify(std::string_view client_sha256) const {
  if (guard_off(Guard::kSigV4Verified)) return std::nullopt;
  const auto time = client_.headers.get(kDate);
  if (!time || !sigv4::is_timestamp(*time) || !time->starts_with(authorization_.scope.date))
    return violation(SecretFault::kSignature,
                     "there is no header X-Amz-Date of the day that the signature is for");
  const SplitTarget target = split(client_.target);
  const auto canonical = policy::canonical_target(target.path);
  const std::array<std::string, 4> paths = {
      std::string(target.path), sigv4::encoded_path(decoded(target.path)),
      sigv4::encoded_path(target.path),
      sigv4::encoded_path(canonical ? canonical->path : std::string(target.path))};
  const std::array<std::string, 2> queries = {sigv4::canonical_query(target.query),
                                              std::string(target.query)};
  const SecretValue key =
      sigv4::derived_key(part(signer_.secret_key).placeholder(), authorization_.scope);
  const std::string_view payload = payload_.empty() ? client_sha256 : std::string_view(payload_);
  for (const std::string& path : paths) {
    for (const std::string& query : queries) {
      const std::string request =
          sigv4::canonical_request(client_, path, query, authorization_.signed_headers, payload);
      if (same_secret(sigv4::signature(key.bytes(), *time, authorization_.scope, request),
                      authorization_.signature))
        return std::nullopt;
    }
  }
  return violation(SecretFault::kSignature,
                   "it does not fit the request and the placeholder of the secret key");
}

// Of S3 a path names an object by each of its bytes.
// What is sent may hold a secret by now: what is judged, and said, is the path as the client asked
// for it.
std::optional<SecretViolation> Resigning::check_path() const {
  const SplitTarget target = split(client_.target);
  if (target.query.find('+') != std::string_view::npos)
    return violation(SecretFault::kSignature,
                     "a '+' in the query can be read in two ways; allowed are %20 and %2B");
  const auto canonical = policy::canonical_target(client_.target);
  const std::string sent = canonical.has_value() ? canonical->path : std::string();
  if (!is_s3(authorization_.scope.service) || guard_off(Guard::kSigV4Path) ||
      decoded(sent) == decoded(target.path))
    return std::nullopt;
  return violation(SecretFault::kSignature,
                   "its path is sent as " + sent.substr(0, 200) +
                       ", which names another object; allowed is one without empty segments and "
                       "without '.' and '..'");
}

Judged<SecretUse> Resigning::sign(http::RequestHead& head, std::string_view client_sha256,
                                  std::string_view body_sha256,
                                  std::chrono::system_clock::time_point now) const {
  const SplitTarget target = split(head.target);
  if (auto refused = verify(client_sha256)) return std::unexpected(std::move(*refused));
  if (auto refused = check_path()) return std::unexpected(std::move(*refused));
  // One that a secret has set.
  if (head.headers.has(kAuthorization)) return std::unexpected(violation(SecretFault::kTwice, ""));
  if (guard_off(Guard::kSigV4Anew)) {
    for (const std::string_view name : {kAuthorization, kDate, kToken}) {
      if (const auto value = client_.headers.get(name)) head.headers.set(name, *value);
    }
    return SecretUse{.secret = signer_.name, .where = std::string(kWhere), .count = 1};
  }
  const std::string time = sigv4::timestamp(now);
  head.headers.set(kDate, time);
  if (signer_.session_token)
    head.headers.set(kToken, part(*signer_.session_token).value()->bytes());
  std::string payload = payload_;
  if (body_ != Body::kFree && !body_sha256.empty()) payload = body_sha256;
  if (body_ == Body::kHashed) head.headers.set(kPayload, payload);

  sigv4::Authorization made{.access_key = std::string(part(signer_.access_key).value()->bytes()),
                            .scope = authorization_.scope,
                            .signed_headers = {},
                            .signature = {}};
  made.scope.date = time.substr(0, authorization_.scope.date.size());
  for (const auto& [name, value] : head.headers.all()) {
    std::string lower = lowered(name);
    const bool was = std::ranges::binary_search(authorization_.signed_headers, lower);
    if (!is_framing(lower) && (was || lower == "host" || lower.starts_with("x-amz-")))
      made.signed_headers.push_back(std::move(lower));
  }
  std::ranges::sort(made.signed_headers);
  const auto [first, last] = std::ranges::unique(made.signed_headers);
  made.signed_headers.erase(first, last);

  const std::string path = is_s3(made.scope.service) ? sigv4::encoded_path(decoded(target.path))
                                                     : sigv4::encoded_path(target.path);
  const std::string request = sigv4::canonical_request(
      head, path, sigv4::canonical_query(target.query), made.signed_headers, payload);
  const SecretValue key = sigv4::derived_key(part(signer_.secret_key).value()->bytes(), made.scope);
  made.signature = sigv4::signature(key.bytes(), time, made.scope, request);
  head.headers.add(kAuthorization, sigv4::written(made));
  return SecretUse{.secret = signer_.name, .where = std::string(kWhere), .count = 1};
}

}  // namespace caisson::egress
