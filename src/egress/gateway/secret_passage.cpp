#include "egress/gateway/secret_passage.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "http/text.h"

namespace caisson::egress {
namespace {

// What a compressed body becomes is looked at without a bound so far, and then while it is no bomb.
constexpr std::uint64_t kFreelyUnpacked = 16u << 20;
constexpr std::uint64_t kMostRatio = 100;

// Of a reason: which of the engine's it is stands behind it (reasons.h).
constexpr std::string_view kBeforeFaults = "secret_";

int status_of(SecretFault fault) {
  switch (fault) {
    case SecretFault::kNoValue:
      return 503;
    case SecretFault::kMalformed:
    case SecretFault::kSignedBody:
      return 400;
    case SecretFault::kEncodedBody:
      return 415;
    default:
      return 403;
  }
}

// What a program did with a placeholder, not what the secret lacks.
bool is_misuse(SecretFault fault) {
  switch (fault) {
    case SecretFault::kHost:
    case SecretFault::kPlaintext:
    case SecretFault::kPlace:
    case SecretFault::kOccurrences:
    case SecretFault::kTrace:
      return true;
    default:
      return false;
  }
}

SecretRefusal refusal_of(const SecretViolation& violation) {
  return {.status = status_of(violation.fault),
          .reason = std::string(kBeforeFaults).append(to_string(violation.fault)),
          .sentence = violation.sentence(),
          .uses = {{.secret = violation.secret, .where = violation.where}},
          .terminates = violation.consequence == policy::OnSecretViolation::kTerminate &&
                        is_misuse(violation.fault)};
}

SecretRefusal encoded_body(std::string_view why) {
  return {.status = 415,
          .reason = "secret_encoded_body",
          .sentence = "what is compressed could hide a secret's placeholder: " + std::string(why)};
}

// Without the framing in which the body of a signed request may be.
http::RequestHead without_chunks(http::RequestHead head) {
  constexpr std::string_view kChunks = "aws-chunked";
  std::string codings, rest;
  for (const auto& [name, value] : head.headers.all()) {
    if (http::same_name(name, "content-encoding")) codings += "," + value;
  }
  for (std::string_view left = codings; !left.empty();) {
    const std::size_t end = std::min(left.find(','), left.size());
    const std::string_view coding = http::trimmed(left.substr(0, end));
    if (!coding.empty() && !http::same_name(coding, kChunks))
      rest.append(rest.empty() ? "" : ",").append(coding);
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  head.headers.remove("content-encoding");
  if (!rest.empty()) head.headers.add("Content-Encoding", rest);
  return head;
}

// By its Content-Type; its messages may be compressed each by itself, as grpc-encoding says.
bool is_grpc(const http::Headers& headers) {
  constexpr std::string_view kGrpc = "application/grpc";
  return http::same_name(headers.get("content-type").value_or("").substr(0, kGrpc.size()), kGrpc);
}

bool compresses_messages(const http::Headers& headers) {
  // Whatever the Content-Type says: Connect's streams have a name of their own for it.
  for (const std::string_view name : {"grpc-encoding", "connect-content-encoding"}) {
    if (headers.has(name) && !http::same_name(headers.joined(name), "identity")) return true;
  }
  return false;
}

}  // namespace

SecretPassage::SecretPassage(std::shared_ptr<const SecretRules> rules, policy::Host host,
                             Channel channel)
    : rules_(std::move(rules)), host_(std::move(host)), channel_(channel) {}

bool SecretPassage::is_served() const {
  return std::ranges::any_of(
      rules_->all(), [&](const Secret& secret) { return secret.scrubs() && secret.serves(host_); });
}

bool SecretPassage::wants_whole_answers() const {
  return std::ranges::any_of(rules_->all(), [&](const Secret& secret) {
    return secret.scrubs() && !secret.signing() && secret.serves(host_);
  });
}

Error SecretPassage::keep(SecretRefusal refusal) {
  Error error(Code::kPermissionDenied, refusal.sentence);
  refusal_ = std::move(refusal);
  return error;
}

std::optional<SecretRefusal> SecretPassage::admit(const http::RequestHead& head, bool upgrades) {
  if (is_served()) {
    scrub_.emplace(rules_);
    if (upgrades)
      return SecretRefusal{.reason = "secret_websocket",
                           .sentence =
                               "a host that gets a secret gets no WebSocket, in whose "
                               "frames the secret would come back unseen"};
  }
  auto resigning = Resigning::begin(rules_, host_, channel_, head);
  if (!resigning.has_value()) return refusal_of(resigning.error());
  resigning_ = std::move(*resigning);
  if (resigning_ && resigning_->is_chunked()) return admit_body(without_chunks(head));
  return admit_body(head);
}

std::optional<SecretRefusal> SecretPassage::admit_body(const http::RequestHead& head) {
  const auto need = body_need(*rules_, host_, head);
  if (!need.has_value()) return refusal_of(need.error());
  need_ = *need;
  if (need_ != BodyNeed::kNothing && compresses_messages(head.headers))
    return encoded_body("its grpc-encoding is not identity");
  as_it_goes_ = need_ == BodyNeed::kCheck && is_grpc(head.headers) && !resigning_;
  if (as_it_goes_) check_.emplace(rules_, host_, channel_);
  return need_ == BodyNeed::kCheckDecoded ? refuse_coding(head) : std::nullopt;
}

std::optional<SecretRefusal> SecretPassage::refuse_coding(const http::RequestHead& head) {
  std::string codings;
  for (const auto& [name, value] : head.headers.all()) {
    if (http::same_name(name, "content-encoding"))
      codings += (codings.empty() ? "" : ",") + std::string(http::trimmed(value));
  }
  if (http::same_name(codings, "gzip") || http::same_name(codings, "x-gzip")) {
    gunzip_.emplace();
    return std::nullopt;
  }
  return encoded_body("its Content-Encoding is not gzip alone");
}

std::optional<SecretRefusal> SecretPassage::look_into(const std::string& piece) {
  packed_ += piece.size();
  if (!piece.empty()) gunzip_->feed(piece);
  while (!piece.empty()) {
    const auto next = gunzip_->next();
    if (!next.has_value()) return encoded_body(next.error().message());
    if (!next->has_value()) break;
    unpacked_ += (*next)->size();
    if (unpacked_ > kFreelyUnpacked && unpacked_ / kMostRatio > packed_)
      return encoded_body("it becomes more than a hundred times as long");
    const auto passed = check_->feed(**next);
    if (!passed.has_value()) return refusal_of(passed.error());
  }
  if (!piece.empty()) return std::nullopt;
  if (const Status whole = gunzip_->finish(); packed_ > 0 && !whole.has_value())
    return encoded_body(whole.error().message());
  const auto rest = check_->finish();
  if (!rest.has_value()) return refusal_of(rest.error());
  return std::nullopt;
}

std::optional<SecretRefusal> SecretPassage::collected(std::string bytes, Read read) {
  whole_ = read == Read::kAll;
  if (resigning_) {
    hash_.update(bytes);
    if (whole_) body_sha256_ = hash_.finish();
    auto violation = whole_ ? resigning_->check_body(body_sha256_) : std::nullopt;
    if (violation) return refusal_of(*violation);
    if (!whole_ && resigning_->body() == Resigning::Body::kWhole) {
      SecretRefusal refusal = refusal_of(resigning_->too_long());
      refusal.status = 413;
      return refusal;
    }
  }
  // prepare() looks for what is in it.
  if (whole_ && need_ == BodyNeed::kWhole) {
    body_ = std::move(bytes);
    return std::nullopt;
  }
  check_.emplace(rules_, host_, channel_);
  if (gunzip_) {
    body_ = std::move(bytes);
    auto refusal = look_into(body_);
    if (!refusal && whole_ && !body_.empty()) refusal = look_into("");
    if (!refusal) hold_last(body_);
    return refusal;
  }
  auto passed = check_->feed(bytes);
  if (!passed.has_value()) return refusal_of(passed.error());
  body_ = std::move(*passed);
  hold_last(body_);
  if (!whole_) return std::nullopt;
  auto rest = check_->finish();
  if (!rest.has_value()) return refusal_of(rest.error());
  body_ += *rest;
  return std::nullopt;
}

std::optional<SecretRefusal> SecretPassage::prepare(http::RequestHead& head) {
  if (resigning_) resigning_->strip(head);
  OutgoingRequest request{.host = host_, .channel = channel_, .head = head};
  const bool with_body = whole_ && need_ == BodyNeed::kWhole;
  if (with_body) request.body = std::move(body_);
  auto prepared = prepare_request(*rules_, std::move(request));
  if (!prepared.has_value()) return refusal_of(prepared.error());
  head = std::move(prepared->head);
  if (with_body) body_ = std::move(prepared->body).value_or("");
  used_ = std::move(prepared->used);
  // An answer that is compressed, or a part of one, could not be scrubbed.
  if (scrub_) {
    head.headers.set("Accept-Encoding", "identity");
    if (wants_whole_answers()) head.headers.remove("Range").remove("If-Range");
    head.headers.remove("grpc-accept-encoding").remove("connect-accept-encoding");
  }
  return resigning_ ? sign_anew(head, with_body) : std::nullopt;
}

std::optional<SecretRefusal> SecretPassage::sign_anew(http::RequestHead& head, bool with_body) {
  // Of a body that there is not.
  if (need_ == BodyNeed::kNothing) {
    body_sha256_ = Sha256().finish();
    if (const auto violation = resigning_->check_body(body_sha256_)) return refusal_of(*violation);
  }
  std::string sent = body_sha256_;
  if (with_body) {
    Sha256 hash;
    hash.update(body_);
    sent = hash.finish();
  }
  auto use = resigning_->sign(head, body_sha256_, sent, std::chrono::system_clock::now());
  if (!use.has_value()) return refusal_of(use.error());
  used_.push_back(std::move(*use));
  return std::nullopt;
}

bool SecretPassage::holds_last() const {
  return resigning_ && !whole_ && resigning_->body() == Resigning::Body::kHashed;
}

void SecretPassage::hold_last(std::string& passed) {
  if (!holds_last() || passed.empty()) return;
  last_ += passed.back();
  passed.pop_back();
}

Result<std::string> SecretPassage::check_body(const std::string& piece) {
  TRY_ASSIGN(std::string passed, check_piece(piece));
  if (!holds_last()) return passed;
  hash_.update(piece);
  passed.insert(0, std::exchange(last_, ""));
  if (!piece.empty()) {
    hold_last(passed);
    return passed;
  }
  auto violation = resigning_->check_body(hash_.finish());
  if (violation) return fail(keep(refusal_of(*violation)));
  return passed;
}

Result<std::string> SecretPassage::check_piece(const std::string& piece) {
  if (!check_) return piece;
  if (gunzip_) {
    auto refusal = look_into(piece);
    if (refusal) return fail(keep(std::move(*refusal)));
    return piece;
  }
  auto passed = piece.empty() ? check_->finish() : check_->feed(piece);
  if (!passed.has_value()) return fail(keep(refusal_of(passed.error())));
  if (as_it_goes_) *passed += check_->pause();
  return std::move(*passed);
}

Status SecretPassage::check_trailers(const http::Headers& trailers) {
  LeakCheck check(rules_, host_, channel_);
  for (const auto& [name, value] : trailers.all()) {
    const auto passed = check.feed(name + ": " + value + "\n");
    if (!passed.has_value()) return fail(keep(refusal_of(passed.error())));
  }
  const auto passed = check.finish();
  if (!passed.has_value()) return fail(keep(refusal_of(passed.error())));
  return {};
}

Status SecretPassage::answer_head(http::ResponseHead& head) {
  if (!scrub_) return {};
  if (AnswerScrub::is_encoded(head) || compresses_messages(head.headers))
    return fail(keep({.status = 502,
                      .reason = "secret_encoded_answer",
                      .sentence = "the server compresses its answer although that was not asked "
                                  "for, and a secret could be in it"}));
  auto clean = scrub_->head(head);
  if (!clean.has_value())
    return fail(keep({.status = 502,
                      .reason = "secret_in_answer",
                      .sentence = "the answer has a secret in a form that nothing can stand for"}));
  head = std::move(*clean);
  answer_as_it_goes_ = answer_as_it_goes_ || is_grpc(head.headers);
  return {};
}

Status SecretPassage::answer_trailers(http::Headers& trailers) {
  http::ResponseHead head{.headers = std::move(trailers)};
  TRY(answer_head(head));
  trailers = std::move(head.headers);
  return {};
}

Result<std::string> SecretPassage::answer_body(const std::string& piece) {
  if (!scrub_) return piece;
  auto clean = piece.empty() ? scrub_->end() : scrub_->body(piece);
  if (clean.has_value()) {
    if (answer_as_it_goes_) *clean += scrub_->pause();
    return std::move(*clean);
  }
  const std::string form = scrub_->cause() ? std::string(scrub_->cause()->form) : "another";
  return fail(keep({.status = 502,
                    .reason = "secret_in_answer",
                    .sentence = "the answer has a secret in the form " + form +
                                ", for which nothing can stand in its place"}));
}

}  // namespace caisson::egress
