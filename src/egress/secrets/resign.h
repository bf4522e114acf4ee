// A request that was signed with the placeholders of AWS credentials (sigv4.h) on its way to being
// one that is signed with the values.
//
// A program inside signs as it always does. begin() finds the placeholder of an access key in
// Authorization and says what the request may be signed for: region and service are those of the
// program's own credential scope, which a host's name does not tell. strip() takes the signature
// out of what is sent, so that whatever else a request goes through sees no placeholder, and sign()
// puts another one in, over exactly the head that is sent. The program's own signature is verified
// first: what was signed is then what a program with the placeholders meant, and what is sent means
// the same.
//
// Of a signature in the URL, of SigV4A's and of bodies whose chunks are signed nothing is made
// anew; they are refused. Pure; one Resigning a request.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "egress/secrets/secret_rules.h"
#include "egress/secrets/sigv4.h"
#include "egress/secrets/substitute.h"
#include "http/message.h"
#include "policy/host_name.h"

namespace caisson::egress {

class Resigning {
 public:
  // nullopt: the request is not signed with a placeholder of these. `head` as the client sent it.
  static Judged<std::optional<Resigning>> begin(std::shared_ptr<const SecretRules> rules,
                                                const policy::Host& host, Channel channel,
                                                const http::RequestHead& head);

  // What the signature says of the body.
  enum class Body : std::uint8_t {
    kWhole,   // nothing but in the signature itself: it has to be known first
    kHashed,  // its SHA-256
    kFree,    // that it may be any
  };
  Body body() const { return body_; }
  // Whether it is in the framing "aws-chunked", which is no coding that hides anything.
  bool is_chunked() const { return chunked_; }

  // `sha256` in 64 digits is the whole body's, as the client sent it. Nothing: it is as it was
  // signed.
  std::optional<SecretViolation> check_body(std::string_view sha256) const;
  // The violation of a body that sign() would need, and that is longer than what is read first.
  SecretViolation too_long() const;

  // Takes out of the head that is to be sent what the client signed it with.
  void strip(http::RequestHead& head) const;
  // Signs the head that is sent: after it nothing but its framing may change. `body_sha256` is that
  // of the whole body as it is sent; empty: it is not known, and body() is not kWhole.
  // `client_sha256` is the same of the body as it came.
  Judged<SecretUse> sign(http::RequestHead& head, std::string_view client_sha256,
                         std::string_view body_sha256,
                         std::chrono::system_clock::time_point now) const;

 private:
  Resigning(std::shared_ptr<const SecretRules> rules, const SecretRules::Signer& signer)
      : rules_(std::move(rules)), signer_(signer) {}
  const Secret& part(std::size_t place) const { return rules_->all()[place]; }
  SecretViolation violation(SecretFault fault, std::string detail) const;
  std::optional<SecretViolation> read(const policy::Host& host, Channel channel);
  std::optional<SecretViolation> read_authorization();
  std::optional<SecretViolation> check_scope() const;
  std::optional<SecretViolation> read_payload();
  std::optional<SecretViolation> verify(std::string_view client_sha256) const;
  std::optional<SecretViolation> check_path() const;

  std::shared_ptr<const SecretRules> rules_;
  SecretRules::Signer signer_;
  http::RequestHead client_;  // as it came
  sigv4::Authorization authorization_;
  std::string payload_;  // of X-Amz-Content-Sha256; empty: there is none
  Body body_ = Body::kWhole;
  bool chunked_ = false;
};

}  // namespace caisson::egress
