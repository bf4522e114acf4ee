// For tests: an Exchange without a server, whose request a test writes down and whose answer it
// reads afterwards; and run(), which runs one coroutine to its end.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "http/server.h"
#include "io/loop.h"

namespace caisson::api {

// Runs `task` on `loop` until it has ended, together with what else the loop has to do meanwhile.
inline void run(io::Loop& loop, io::Async<void> task) {
  auto whole = [](io::Loop& on, io::Async<void> inner) -> io::Async<void> {
    co_await std::move(inner);
    on.stop();
  };
  loop.spawn(whole(loop, std::move(task)));
  loop.run();
}

// The same for a coroutine that gives something, on a loop of its own.
template <typename T>
T run(io::Async<T> task) {
  io::Loop loop(1);
  std::optional<T> result;
  auto whole = [](io::Async<T> inner, std::optional<T>& into) -> io::Async<void> {
    T value = co_await std::move(inner);
    into.emplace(std::move(value));
  };
  run(loop, whole(std::move(task), result));
  return std::move(*result);
}
inline void run(io::Async<void> task) {
  io::Loop loop(1);
  run(loop, std::move(task));
}

class FakeExchange : public http::Exchange {
 public:
  FakeExchange(std::string_view method, std::string_view target, http::Headers headers = {},
               std::string body = "") {
    head_.method = method;
    head_.target = target;
    head_.headers = std::move(headers);
    if (!head_.headers.has("Host")) head_.headers.add("Host", "api.example.com");
    body_ = std::move(body);
    std::optional<http::Target> parsed = http::parse_target(target);
    EXPECT_TRUE(parsed.has_value()) << target;
    if (parsed.has_value()) target_ = std::move(*parsed);
    id_ = "request-1";
  }

  // What the test sets before it runs the handler.
  std::size_t piece = 64 * 1024;       // no read gives more
  std::optional<Error> read_error;     // instead of the body's end
  bool chunked = false;                // no Content-Length
  std::optional<std::size_t> gone_at;  // the client leaves after so many bytes of the answer
  std::size_t may_hold = 1u << 30;
  std::string asked_name;                         // of TLS
  std::optional<io::Clock::duration> gone_after;  // the client leaves so long after the beginning

  // What it looks at afterwards.
  int status = 0;
  http::Headers headers;
  std::string answer;
  std::vector<std::string> writes;  // one a write()
  bool ended = false;               // by respond() or end()
  bool aborted = false;
  std::size_t held = 0;
  json::Value answer_json() const {
    Result<json::Value> value = json::parse(answer);
    EXPECT_TRUE(value.has_value()) << answer;
    return value.has_value() ? *value : json::Value();
  }

  const http::RequestHead& request() const override { return head_; }
  std::string peer() const override { return "127.0.0.1:5000"; }
  bool secure() const override { return false; }
  io::Async<Result<std::string>> read_some(std::size_t most) override {
    const std::size_t count = std::min({most, piece, body_.size() - read_});
    if (count == 0 && read_error.has_value()) co_return fail(*read_error);
    std::string bytes = body_.substr(read_, count);
    read_ += count;
    co_return bytes;
  }
  Status hold(std::size_t bytes) override {
    if (bytes > may_hold - held) return fail(Error::unavailable("the server holds too much"));
    held += bytes;
    return {};
  }
  void let_go() override { held = 0; }
  std::optional<std::uint64_t> body_length() const override {
    return chunked ? std::nullopt : std::optional<std::uint64_t>(body_.size());
  }
  io::Async<Status> respond(http::ResponseHead head, std::string body) override {
    take(std::move(head));
    answer = std::move(body);
    ended = true;
    co_return Status();
  }
  io::Async<Status> begin(http::ResponseHead head) override {
    take(std::move(head));
    co_return Status();
  }
  io::Async<Status> write(std::string_view bytes) override {
    EXPECT_TRUE(begun_ && !ended) << "write() outside of an answer";
    if (gone()) co_return fail(Error::unavailable("the client has gone"));
    answer += bytes;
    writes.emplace_back(bytes);
    if (gone() && when_gone_) when_gone_();
    co_return Status();
  }
  io::Async<Status> end() override {
    EXPECT_TRUE(begun_ && !ended) << "end() outside of an answer";
    ended = true;
    co_return Status();
  }
  void abort() override { aborted = true; }
  io::Async<void> wait_gone() override {
    if (!gone_after.has_value()) co_return;
    co_await io::Loop::sleep(*gone_after);
    aborted = true;
  }
  void on_gone(std::function<void()> call) override { when_gone_ = std::move(call); }
  bool gone() const override {
    return aborted || (gone_at.has_value() && answer.size() >= *gone_at);
  }
  io::Async<Result<Upgraded>> upgrade(http::ResponseHead) override {
    co_return fail({Code::kUnimplemented, "a FakeExchange has no connection"});
  }

 private:
  void take(http::ResponseHead head) {
    EXPECT_FALSE(begun_) << "two answers to one request";
    begun_ = true;
    status = head.status;
    headers = std::move(head.headers);
  }

  http::RequestHead head_;
  std::string body_;
  std::size_t read_ = 0;
  std::function<void()> when_gone_;
};

}  // namespace caisson::api
