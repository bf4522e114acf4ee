// For tests of the server: one whose handlers are by path, and clients of it that speak in bytes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "http/server.h"
#include "io/loop_for_test.h"

namespace caisson::http {

using namespace std::chrono_literals;
using io::Async;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

inline ResponseHead text_head(int status = 200) {
  return {.status = status, .headers = {{"Content-Type", "text/plain"}}};
}

class ServerTest : public ::testing::Test {
 protected:
  // Starts the server; once, before `run`.
  void start() {
    auto listener = io::listen_tcp(loop_, "127.0.0.1:0");
    VERIFY(listener.has_value());
    address_ = (*listener)->address();
    server_.emplace(loop_, limits_, [this](Exchange& exchange) { return handle(exchange); });
    server_->serve(std::move(*listener));
  }
  void on(const std::string& path, Handler handler) { handlers_[path] = std::move(handler); }

  // Answers with what came.
  static Async<void> echo(Exchange& exchange) {
    const auto body = co_await exchange.read_all(1 << 20);
    if (!body.has_value()) {
      co_await exchange.respond(text_head(400), body.error().message());
      co_return;
    }
    co_await exchange.respond(
        text_head(), exchange.request().method + " " + exchange.target().path + " " + *body);
  }
  Async<void> handle(Exchange& exchange) {
    const auto found = handlers_.find(exchange.target().path);
    if (found == handlers_.end()) return echo(exchange);
    return found->second(exchange);
  }

  Async<std::unique_ptr<io::Stream>> connect() {
    auto stream = co_await io::connect_tcp(loop_, address_);
    VERIFY(stream.has_value());
    co_return std::move(*stream);
  }
  // Sends `bytes` and gives all that comes until the end.
  Async<std::string> talk(std::string bytes) {
    const auto stream = co_await connect();
    co_await io::send(*stream, std::move(bytes));
    const std::string answer = co_await io::read_to_end(*stream);
    co_return answer;
  }
  // What comes until it ends with `end`.
  static Async<std::string> read_until(io::Stream& stream, std::string end) {
    std::string all;
    std::array<char, 1> piece;
    while (!all.ends_with(end)) {
      const auto count = co_await stream.read(piece);
      if (count.value_or(0) == 0) break;
      all += piece[0];
    }
    co_return all;
  }
  // What a server says to `bytes`, whose connection it closes.
  std::string answer_to(const std::string& bytes) {
    start();
    std::string answer;
    auto body = [&]() -> Async<void> { answer = co_await talk(bytes); };
    io::run_on(loop_, body);
    return answer;
  }

  io::Loop loop_{1};
  Limits limits_;
  std::map<std::string, Handler> handlers_;
  std::string address_;
  std::optional<Server> server_;
};

// Reads until the end or a reset; says which.
inline Async<bool> was_reset(io::Stream& stream) {
  std::array<char, 4096> piece;
  for (;;) {
    const auto count = co_await stream.read(piece);
    if (!count.has_value()) co_return true;
    if (*count == 0) co_return false;
  }
}

}  // namespace caisson::http
