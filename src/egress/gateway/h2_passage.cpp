#include "egress/gateway/h2_passage.h"

#include <utility>

#include "io/race.h"

namespace caisson::egress {
namespace {

using io::Async;
using Read = http::PassageOptions::Read;

constexpr std::size_t kPiece = 64 * 1024;
constexpr auto kForEver = std::chrono::hours(24 * 365);

bool announces_body(const http::Headers& headers) {
  return headers.has("Transfer-Encoding") || headers.get("Content-Length").value_or("0") != "0";
}

}  // namespace

H2Passage::H2Passage(H2Exchange& exchange, H2Session& upstream, H2PassageOptions options)
    : exchange_(exchange),
      session_(upstream),
      options_(std::move(options)),
      has_body_(announces_body(options_.message.head.headers)) {}

H2Passage::~H2Passage() {
  if (upstream_ != nullptr) upstream_->let_go();
}

bool H2Passage::may_repeat() const {
  return upstream_ != nullptr && upstream_->unprocessed() && !has_body_ && answer_status_ == 0;
}

Async<Status> H2Passage::send_body() {
  http::PassageOptions& message = options_.message;
  std::string bytes = std::move(message.early_body);
  for (bool ended = false;;) {
    if (!bytes.empty()) CO_TRY(co_await upstream_->write(bytes));
    if (ended) break;
    if (message.early_read == Read::kAll) {
      bytes.clear();
      break;
    }
    auto piece = co_await exchange_.read_some(kPiece);
    if (piece.has_value()) {
      ended = piece->empty();
      if (message.change_body) piece = message.change_body(std::move(*piece));
    }
    if (!piece.has_value()) {
      body_fault_ = piece.error();
      co_return fail(piece.error());
    }
    bytes = std::move(*piece);
  }
  auto trailers = exchange_.trailers();
  if (trailers.has_value() && options_.on_trailers) {
    const Status looked = options_.on_trailers(*trailers);
    if (!looked.has_value()) trailers = fail(looked.error());
  }
  if (!trailers.has_value()) {
    body_fault_ = trailers.error();
    co_return fail(trailers.error());
  }
  upstream_->end(fields_of(*trailers));
  co_return Status();
}

// Ends only where the client's body broke off: an answer may come before all was sent.
Async<void> H2Passage::send() {
  if (has_body_) co_await send_body();
  if (body_fault_.has_value()) co_return;
  co_await io::Loop::sleep(kForEver);
}

Async<Status> H2Passage::pass_body() {
  const auto& change = options_.message.change_answer_body;
  for (;;) {
    CO_TRY_ASSIGN(std::string piece, co_await upstream_->read_some(kPiece));
    const bool ended = piece.empty();
    if (change) {
      CO_TRY_ASSIGN(piece, change(std::move(piece)));
    }
    if (!piece.empty()) CO_TRY(co_await exchange_.write(piece));
    if (ended) break;
  }
  CO_TRY_ASSIGN(http::Headers trailers, trailers_of(upstream_->trailers()));
  if (options_.on_answer_trailers) CO_TRY(options_.on_answer_trailers(trailers));
  co_return exchange_.end_with(trailers);
}

Async<Status> H2Passage::receive_answer() {
  CO_TRY_ASSIGN(const H2Fields fields, co_await upstream_->read_head());
  CO_TRY_ASSIGN(http::ResponseHead head, response_of(fields));
  const bool whole = upstream_->ended_with_head();
  answer_status_ = head.status;
  http::remove_hop_by_hop(head.headers);
  if (options_.message.on_answer) CO_TRY(options_.message.on_answer(head));
  if (whole) co_return exchange_.begin_and_end(std::move(head));
  CO_TRY(co_await exchange_.begin(std::move(head)));
  co_return co_await pass_body();
}

Async<void> H2Passage::receive(Status& result) {
  result = co_await receive_answer();
}

Async<Status> H2Passage::run() {
  H2Fields fields = fields_of(options_.message.head);
  // The one thing of a connection that HTTP/2 has, and gRPC asks for.
  if (exchange_.request().headers.has("te")) fields.emplace_back("te", "trailers");
  CO_TRY_ASSIGN(upstream_, session_.open(fields, has_body_ ? H2End::kFollows : H2End::kEnds,
                                         options_.remember));
  Status result = fail(Error(Code::kCancelled, "the client has gone"));
  co_await io::race(send(), receive(result));
  if (!result.has_value() && body_fault_.has_value()) co_return fail(*body_fault_);
  co_return result;
}

}  // namespace caisson::egress
