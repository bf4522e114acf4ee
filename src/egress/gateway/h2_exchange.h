// One stream of a sandbox's HTTP/2 connection, as the code that judges and answers requests of
// HTTP/1.1 sees one: an Exchange whose head says the same in HTTP/1.1's words, and a Carrier.
//
// Lives in the coroutine that serves the stream, whose end ends the stream.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "egress/gateway/h2_session.h"
#include "egress/gateway/meter.h"
#include "http/server.h"

namespace caisson::egress {

class H2Exchange final : public http::Exchange, public Carrier {
 public:
  // `server`: whose budget of bodies that are held this one takes from.
  H2Exchange(io::Loop& loop, http::Server& server, std::shared_ptr<H2Stream> stream,
             http::RequestHead head, std::string peer);
  ~H2Exchange() override;
  H2Exchange(const H2Exchange&) = delete;
  H2Exchange& operator=(const H2Exchange&) = delete;

  // ---- of HTTP/2 alone
  // What the client sent behind the body, which has ended. Error: invalid.
  Result<http::Headers> trailers() const { return trailers_of(stream_->trailers()); }
  // begin() of an answer that has nothing else: no body, nothing behind it.
  Status begin_and_end(http::ResponseHead head);
  // end() with what stands behind the body.
  Status end_with(const http::Headers& trailers);

  // ---- Exchange
  const http::RequestHead& request() const override { return head_; }
  std::string peer() const override { return peer_; }
  bool secure() const override { return true; }
  io::Async<Result<std::string>> read_some(std::size_t most) override;
  Status hold(std::size_t bytes) override;
  void let_go() override;
  std::optional<std::uint64_t> body_length() const override;
  io::Async<Status> respond(http::ResponseHead head, std::string body) override;
  io::Async<Status> begin(http::ResponseHead head) override;
  io::Async<Status> write(std::string_view bytes) override;
  io::Async<Status> end() override;
  void abort() override;
  io::Async<void> wait_gone() override { return stream_->wait_broken(); }
  void on_gone(std::function<void()> call) override;
  bool gone() const override { return stream_->broken_off(); }
  io::Async<Result<Upgraded>> upgrade(http::ResponseHead head) override;

  // ---- Carrier
  std::uint64_t bytes_down() const override { return down_; }
  io::Clock::time_point moved_at() const override { return moved_at_; }
  std::string_view ended_by() const override { return ended_by_; }
  void end_for(std::string_view limit) override;

 private:
  Status send(const http::ResponseHead& head, H2End end);
  bool has_no_body(int status) const;

  io::Loop& loop_;
  http::Server& server_;
  std::shared_ptr<H2Stream> stream_;
  const http::RequestHead head_;
  const std::string peer_;
  bool continued_;     // "100 Continue" was sent, or is not needed
  bool bare_ = false;  // the answer has a head alone
  std::size_t held_ = 0;
  std::uint64_t read_ = 0;  // of the body
  std::uint64_t down_ = 0;
  io::Clock::time_point moved_at_ = io::Clock::now();
  std::string_view ended_by_;
  std::shared_ptr<std::function<void()>> on_gone_;
};

}  // namespace caisson::egress
