// One request of a connection and its answer, as the handler sees them.
//
// Lives in the coroutine that serves the connection. Only .cpp files of src/http include this.
#pragma once

#include <memory>
#include <string>

#include "http/codec.h"
#include "http/connection.h"

namespace caisson::http {

class ServerExchange final : public Exchange {
 public:
  ServerExchange(std::shared_ptr<Connection> connection, ParsedRequest request);
  ~ServerExchange() override { let_go(); }
  ServerExchange(const ServerExchange&) = delete;
  ServerExchange& operator=(const ServerExchange&) = delete;

  // False: malformed.
  bool parse_target();
  // An error as the whole answer.
  io::Async<void> refuse(int status, std::string sentence);
  // When the handler has ended: ends the answer where it must, drops the rest of the body. Whether
  // another request may follow.
  io::Async<bool> finish();
  bool upgraded() const { return answer_ == Answer::kUpgraded; }

  const RequestHead& request() const override { return request_.head; }
  std::string peer() const override { return connection_->stream().peer(); }
  bool secure() const override { return connection_->secure(); }
  io::Async<Result<std::string>> read_some(std::size_t most) override;
  Status hold(std::size_t bytes) override;
  void let_go() override;
  std::optional<std::uint64_t> body_length() const override;
  io::Async<Status> respond(ResponseHead head, std::string body) override;
  io::Async<Status> begin(ResponseHead head) override;
  io::Async<Status> write(std::string_view bytes) override;
  io::Async<Status> end() override;
  void abort() override;
  io::Async<void> wait_gone() override;
  void on_gone(std::function<void()> call) override;
  bool gone() const override { return connection_->gone(); }
  io::Async<Result<Upgraded>> upgrade(ResponseHead head) override;

 private:
  enum class Answer : std::uint8_t { kNone, kBegun, kEnded, kUpgraded };
  enum class Body : std::uint8_t { kNone, kLength, kChunked, kUntilClose };

  Status not_begun() const;
  // Adds what is the server's, decides whether the connection stays, and encodes it.
  Result<std::string> make_head(ResponseHead head, std::optional<std::uint64_t> length);
  bool may_stay() const;
  bool has_no_body(int status) const;
  // read_some() that waits so long for bytes.
  io::Async<Result<std::string>> next_piece(std::size_t most, io::Clock::duration time);
  // Reads the rest of the request's body and drops it. False: it was too long, or broke off.
  io::Async<bool> drop_body();

  std::shared_ptr<Connection> connection_;
  ParsedRequest request_;
  BodyDecoder decoder_;
  std::optional<Refusal> body_refusal_;
  std::size_t held_ = 0;
  bool continued_ = false;  // "100 Continue" was sent, or is not needed
  Answer answer_ = Answer::kNone;
  Body body_ = Body::kNone;  // of the answer
  std::uint64_t left_ = 0;   // of an answer with a length
  bool stays_ = true;        // the connection, after this answer
  std::shared_ptr<std::function<void()>> on_gone_;
};

// {"code":…,"message":…}
std::string error_body(int status, std::string_view sentence);

}  // namespace caisson::http
