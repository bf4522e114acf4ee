#include "egress/gateway/h2_exchange.h"

#include <charconv>
#include <utility>

#include "http/codec.h"

namespace caisson::egress {

using io::Async;

H2Exchange::H2Exchange(io::Loop& loop, http::Server& server, std::shared_ptr<H2Stream> stream,
                       http::RequestHead head, std::string peer)
    : loop_(loop),
      server_(server),
      stream_(std::move(stream)),
      head_(std::move(head)),
      peer_(std::move(peer)),
      continued_(!http::has_word(head_.headers, "Expect", "100-continue")) {}

H2Exchange::~H2Exchange() {
  if (on_gone_ != nullptr) *on_gone_ = nullptr;
  let_go();
  stream_->let_go();
}

// ---- the request's body -------------------------------------------------------------------------

Async<Result<std::string>> H2Exchange::read_some(std::size_t most) {
  if (!std::exchange(continued_, true) && !begun_)
    CO_TRY(stream_->send_head({{":status", "100"}}, H2End::kFollows));
  CO_TRY_ASSIGN(std::string piece, co_await stream_->read_some(most));
  moved_at_ = io::Clock::now();
  read_ += piece.size();
  // Behind it another request could stand, for a server of HTTP/1.1.
  const auto length = body_length();
  if (length && (read_ > *length || (piece.empty() && read_ < *length)))
    co_return fail(Error::invalid("the body is not as long as its Content-Length says"));
  co_return piece;
}

Status H2Exchange::hold(std::size_t bytes) {
  TRY(server_.hold(bytes));
  held_ += bytes;
  return {};
}

void H2Exchange::let_go() {
  server_.let_go(std::exchange(held_, 0));
}

std::optional<std::uint64_t> H2Exchange::body_length() const {
  const auto stated = head_.headers.get("content-length");
  if (!stated) {
    if (head_.headers.has("Transfer-Encoding")) return std::nullopt;
    return 0;
  }
  std::uint64_t length = 0;  // request_of() has seen that it is a number
  std::from_chars(stated->data(), stated->data() + stated->size(), length);
  return length;
}

// ---- the answer ---------------------------------------------------------------------------------

bool H2Exchange::has_no_body(int status) const {
  return head_.method == "HEAD" || status == 204 || status == 304;
}

Status H2Exchange::send(const http::ResponseHead& head, H2End end) {
  if (begun_) return fail(Error::precondition("the answer has begun already"));
  const H2Fields fields = fields_of(head);
  TRY(stream_->send_head(fields, end));
  begun_ = true;
  bare_ = end == H2End::kEnds;
  for (const auto& [name, value] : fields) down_ += name.size() + value.size();
  moved_at_ = io::Clock::now();
  return {};
}

Async<Status> H2Exchange::respond(http::ResponseHead head, std::string body) {
  if (body.empty() || has_no_body(head.status)) co_return begin_and_end(std::move(head));
  head.headers.set("Content-Length", std::to_string(body.size()));
  CO_TRY(send(head, H2End::kFollows));
  CO_TRY(co_await write(body));
  co_return co_await end();
}

Async<Status> H2Exchange::begin(http::ResponseHead head) {
  co_return send(head, has_no_body(head.status) ? H2End::kEnds : H2End::kFollows);
}

Status H2Exchange::begin_and_end(http::ResponseHead head) {
  TRY(send(head, H2End::kEnds));
  stream_->end({});
  return {};
}

Async<Status> H2Exchange::write(std::string_view bytes) {
  if (!begun_) co_return fail(Error::precondition("the answer has not begun"));
  if (gone()) co_return fail(Error::unavailable("the client has gone"));
  if (bare_ || bytes.empty()) co_return Status();
  CO_TRY(co_await stream_->write(bytes));
  down_ += bytes.size();
  moved_at_ = io::Clock::now();
  co_return Status();
}

Status H2Exchange::end_with(const http::Headers& trailers) {
  if (!begun_) return fail(Error::precondition("the answer has not begun"));
  if (gone()) return fail(Error::unavailable("the client has gone"));
  stream_->end(bare_ ? H2Fields() : fields_of(trailers));
  return {};
}

Async<Status> H2Exchange::end() {
  co_return end_with({});
}

void H2Exchange::abort() {
  begun_ = true;
  stream_->reset(H2Code::kInternalError);
}

// ---- the client's end ---------------------------------------------------------------------------

void H2Exchange::on_gone(std::function<void()> call) {
  const bool watched = on_gone_ != nullptr;
  if (!watched) on_gone_ = std::make_shared<std::function<void()>>();
  *on_gone_ = std::move(call);
  if (watched) return;
  auto watch = [](std::shared_ptr<H2Stream> stream,
                  std::shared_ptr<std::function<void()>> held) -> Async<void> {
    co_await stream->wait_broken();
    if (*held != nullptr) (*held)();
  };
  loop_.spawn(watch(stream_, on_gone_));
}

void H2Exchange::end_for(std::string_view limit) {
  if (gone()) return;
  ended_by_ = limit;
  stream_->reset(H2Code::kCancel);
}

Async<Result<http::Exchange::Upgraded>> H2Exchange::upgrade(http::ResponseHead) {
  co_return fail(Error::precondition("a stream of HTTP/2 becomes no other protocol"));
}

}  // namespace caisson::egress
