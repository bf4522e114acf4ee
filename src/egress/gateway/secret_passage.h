// The secrets of a sandbox on their way through one request and its answer: what secrets/ decides,
// in the order in which a gateway has the parts of a request.
//
// Before anything is sent: admit() (may this request go on at all), the body or its beginning
// (collected()), prepare() (the head, and where a secret may be in the body that too). Then what
// is left of the body passes check_body(), and the answer answer_head() and answer_body(). A host
// that some secret serves is asked for answers that can be read, and gets no WebSocket, whose
// frames nobody looks into. A request that was signed with placeholders is signed anew in
// prepare(), over what is sent, and of a body that passes afterwards the last byte goes only when
// all of it is what was signed. One object a request; lives as long as its passage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/sha256.h"
#include "egress/secrets/resign.h"
#include "egress/secrets/scrub.h"
#include "egress/secrets/substitute.h"
#include "http/gzip.h"
#include "http/message.h"

namespace caisson::egress {

// Why a request, or its answer, does not go on.
struct SecretRefusal {
  int status = 403;
  std::string reason;  // "secret_host", …
  std::string sentence;
  std::vector<SecretUse> uses;  // the secret and the place; its count is that of nothing
  bool terminates = false;      // the sandbox is to end for it (on_violation: terminate)
};

class SecretPassage {
 public:
  SecretPassage(std::shared_ptr<const SecretRules> rules, policy::Host host, Channel channel);

  // By the head as the client sent it. Nothing: it may go on so far. A body that is gzip is
  // looked at as what it becomes, one in another coding is refused.
  std::optional<SecretRefusal> admit(const http::RequestHead& head, bool upgrades);
  // Whether the body has to be looked at; then as much of it as kMostWholeBody is to be read first.
  // Not so of gRPC, whose callers may wait for an answer between two parts of a request: there
  // check_body() gets all of it.
  bool wants_body() const { return need_ != BodyNeed::kNothing && !as_it_goes_; }
  // What was read of it, and whether that is all.
  enum class Read : bool { kPart, kAll };
  std::optional<SecretRefusal> collected(std::string bytes, Read read);
  // The head with its secrets; what was collected is in body() then, as far as it may go on.
  std::optional<SecretRefusal> prepare(http::RequestHead& head);
  std::string take_body() { return std::move(body_); }

  // The next piece of the body, behind what was collected; empty: it has ended. Error:
  // permission_denied; refusal() says why.
  Result<std::string> check_body(const std::string& piece);
  // What stands behind the body, of HTTP/2. No secret gets in there.
  Status check_trailers(const http::Headers& trailers);
  // Error: aborted.
  Status answer_head(http::ResponseHead& head);
  Result<std::string> answer_body(const std::string& piece);
  Status answer_trailers(http::Headers& trailers);

  // Of an error of those, for the record and for whoever asked.
  const std::optional<SecretRefusal>& refusal() const { return refusal_; }
  const std::vector<SecretUse>& used() const { return used_; }
  // How often the answer had a value.
  std::size_t scrubbed() const { return scrub_ ? scrub_->replaced() : 0; }

 private:
  bool is_served() const;
  // Whether an answer in parts could have a piece of a value that the server was sent. What signs
  // is never sent, and of a session token no server says a part.
  bool wants_whole_answers() const;
  std::optional<SecretRefusal> sign_anew(http::RequestHead& head, bool with_body);
  std::optional<SecretRefusal> admit_body(const http::RequestHead& head);
  Result<std::string> check_piece(const std::string& piece);
  // Whether the body's hash was signed, and shows when it has ended.
  bool holds_last() const;
  void hold_last(std::string& passed);
  std::optional<SecretRefusal> refuse_coding(const http::RequestHead& head);
  // What a gzip body becomes; `piece` empty: it has ended.
  std::optional<SecretRefusal> look_into(const std::string& piece);
  Error keep(SecretRefusal refusal);

  std::shared_ptr<const SecretRules> rules_;
  policy::Host host_;
  Channel channel_;
  BodyNeed need_ = BodyNeed::kNothing;
  bool as_it_goes_ = false, answer_as_it_goes_ = false;  // of gRPC, with pauses
  std::string body_;
  bool whole_ = false;  // body_ is all of it
  std::optional<LeakCheck> check_;
  std::optional<http::Gunzip> gunzip_;
  std::uint64_t packed_ = 0, unpacked_ = 0;  // bytes of it
  std::optional<Resigning> resigning_;
  Sha256 hash_;              // of the body as it comes
  std::string body_sha256_;  // of all of it
  std::string last_;         // of the body, not sent yet
  std::optional<AnswerScrub> scrub_;
  std::vector<SecretUse> used_;
  std::optional<SecretRefusal> refusal_;
};

}  // namespace caisson::egress
