// Puts secrets into one request of a sandbox, or says why the request may not leave.
//
// Called after the policy has allowed the request and before a byte of it goes upstream. Every
// placeholder of the sandbox in it must be of a live secret, on its way to one of the secret's
// hosts over verified TLS, in a place that the secret's rule names, no more often than it says;
// there it becomes the value, encoded for the place, and everything around it stays as it was.
// Whatever placeholder is left then, in any regular encoding (form_search.h), makes a violation, so
// what is sent has none by construction, but for hosts that a rule lets see it.
//
// How a caller goes about it: body_need() of the head says what becomes of the body. Where it is
// wanted whole it is collected, up to kMostWholeBody; prepare_request() with it gives all that is
// sent. In any other case prepare_request() gets no body, and the body passes a LeakCheck on its
// way; to refuse before anything was sent a caller may collect a small one then, too. A body that
// is wanted whole and is longer passes a LeakCheck as well, and no secret gets into it.
//
// What is sent holds real values: it is to be sent and dropped, and printed nowhere. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egress/secrets/form_search.h"
#include "egress/secrets/secret_rules.h"
#include "http/message.h"
#include "policy/host_name.h"

namespace caisson::egress {

inline constexpr std::size_t kMostWholeBody = 1 << 20;

enum class SecretFault : std::uint8_t {
  kRevoked,
  kHost,         // the secret is not for this host
  kPlaintext,    // no TLS, or none that was verified
  kPlace,        // its rule does not name this place, or it is encoded as nothing in it is
  kOccurrences,  // more often than the rule says
  kNoValue,      // its source has none now: the sandbox did nothing wrong, and may try again
  kUnfit,        // the value cannot stand in this place
  kMalformed,    // the body is not what its type says
  kEncodedBody,  // a compressed body, where the secret may be in bodies
  kTrace,        // a method that has the server send the request back
  kTwice,        // two secrets set the same header
  // Of requests that are signed (resign.h):
  kSignature,    // the signature is none, or not one with the placeholder of the secret key
  kScope,        // it is for a region or service that the credentials are not for
  kSigningForm,  // it is made in a way in which nothing is signed anew
  kSignedBody,   // the body is not the one that was signed, or too long to be hashed first
};
// "revoked", for the audit.
std::string_view to_string(SecretFault fault);

struct SecretViolation {
  std::string secret;  // its name
  // "method", "path", "query", "query:NAME", "header:NAME", "header name", "basic:user",
  // "basic:password", "body", "json:/POINTER" or "form:NAME"; names of headers in small letters,
  // cut at 64 bytes.
  std::string where;
  SecretFault fault = SecretFault::kPlace;
  policy::OnSecretViolation consequence = policy::OnSecretViolation::kBlock;
  std::string detail = {};  // what more there is to say
  // For whoever sent the request.
  std::string sentence() const;
  bool operator==(const SecretViolation&) const = default;
};
template <typename T>
using Judged = std::expected<T, SecretViolation>;

// How the request goes to the server.
enum class Channel : std::uint8_t { kVerifiedTls, kPlaintext };

// Why the secret's value may not go to this host at all; nullopt: it may.
std::optional<SecretFault> fault_of(const Secret& secret, const policy::Host& host,
                                    Channel channel);

struct SecretUse {
  std::string secret, where;
  std::size_t count = 0;
  bool operator==(const SecretUse&) const = default;
};

enum class BodyNeed : std::uint8_t {
  kNothing,  // it may pass as it comes, or there is none
  kWhole,    // a secret may be in it
  kCheck,    // no placeholder may be in it: a LeakCheck
  // The same, of what the body's Content-Encoding hides: who cannot decode it refuses the request.
  kCheckDecoded,
};
Judged<BodyNeed> body_need(const SecretRules& rules, const policy::Host& host,
                           const http::RequestHead& head);

struct OutgoingRequest {
  policy::Host host;
  Channel channel = Channel::kPlaintext;
  // Its target in the spelling of policy::canonical_target().
  http::RequestHead head;
  std::optional<std::string> body;  // nullopt: there is none, or it passes a LeakCheck
};

struct PreparedRequest {
  // Without Proxy-Authorization; with the body's Content-Length, where a body was given; where
  // `used` is not empty with `Accept-Encoding: identity` and without Max-Forwards.
  http::RequestHead head;
  std::optional<std::string> body;
  std::vector<SecretUse> used;
};
Judged<PreparedRequest> prepare_request(const SecretRules& rules, OutgoingRequest request);

// A body on its way: holds back what may be the beginning of a placeholder.
class LeakCheck {
 public:
  LeakCheck(std::shared_ptr<const SecretRules> rules, policy::Host host, Channel channel);

  // The next bytes that may be sent, perhaps none. After a violation there is no other answer.
  Judged<std::string> feed(std::string_view piece);
  // Whoever gets it may wait with an answer for what came so far, and whoever sends it for that
  // answer: what is held back where that is no more than kMostEarly bytes, else nothing. What they
  // turn out to begin is a violation all the same.
  std::string pause();
  // The body has ended; the last of them.
  Judged<std::string> finish();

 private:
  Judged<std::string> released();

  std::shared_ptr<const SecretRules> rules_;
  policy::Host host_;
  Channel channel_;
  FormSearch search_;
  std::string held_;
  std::uint64_t base_ = 0;  // of held_ in the body
  std::size_t early_ = 0;   // bytes of held_ that have gone already
  std::optional<SecretViolation> violation_;
};

}  // namespace caisson::egress
