// For tests: a server on 127.0.0.1, on a thread of its own, that answers as a test has written down
// and remembers what it was asked.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "http/server.h"
#include "io/loop.h"

namespace caisson::cli {

class FakeServer {
 public:
  struct Answer {
    int status = 200;
    std::string body;
    bool cut_off = false;  // begun, and broken off
    std::string after;     // a request that has to come before
  };
  struct Request {
    std::string line;  // "POST /v1/sandboxes"
    std::string body;
    std::string key;
  };

  FakeServer() : server_(loop_, {}, [this](http::Exchange& exchange) { return serve(exchange); }) {
    auto listener = io::listen_tcp(loop_, "127.0.0.1:0");
    VERIFY(listener.has_value());
    address_ = (*listener)->address();
    server_.serve(std::move(*listener));
    thread_ = std::thread([this] { loop_.run(); });
  }
  ~FakeServer() {
    loop_.post([this] { loop_.stop(); });
    thread_.join();
  }

  std::string url() const { return "http://" + address_; }
  // What the requests of that line are answered with, one after the other; the last one again and
  // again. Without one: 404.
  void answer(const std::string& line, Answer answer) {
    const std::lock_guard lock(mutex_);
    answers_[line].push_back(std::move(answer));
  }
  std::vector<Request> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }
  // The lines of all requests, with their bodies behind them.
  std::vector<std::string> told() {
    std::vector<std::string> lines;
    for (const Request& request : requests())
      lines.push_back(request.line + (request.body.empty() ? "" : " " + request.body));
    return lines;
  }

 private:
  io::Async<void> serve(http::Exchange& exchange) {
    auto body = co_await exchange.read_all(1 << 20);
    const Answer answer = take(exchange, body.value_or(""));
    while (!answer.after.empty() && !was_asked(answer.after))
      co_await io::Loop::sleep(std::chrono::milliseconds(1));
    http::ResponseHead head;
    head.status = answer.status;
    if (!answer.cut_off) {
      [[maybe_unused]] const Status sent = co_await exchange.respond(std::move(head), answer.body);
      co_return;
    }
    [[maybe_unused]] const Status begun = co_await exchange.begin(std::move(head));
    [[maybe_unused]] const Status written = co_await exchange.write(answer.body);
    exchange.abort();
  }
  bool was_asked(const std::string& line) {
    const std::lock_guard lock(mutex_);
    return std::ranges::find(requests_, line, &Request::line) != requests_.end();
  }
  Answer take(const http::Exchange& exchange, std::string body) {
    const std::lock_guard lock(mutex_);
    const std::string line = exchange.request().method + " " + exchange.request().target;
    requests_.push_back({line, std::move(body),
                         std::string(exchange.request().headers.get("X-API-Key").value_or(""))});
    const auto found = answers_.find(line);
    if (found == answers_.end())
      return {.status = 404,
              .body = "{\"code\":404,\"message\":\"not written down: " + line + "\"}"};
    Answer answer = found->second.front();
    if (found->second.size() > 1) found->second.erase(found->second.begin());
    return answer;
  }

  io::Loop loop_{1};
  http::Server server_;
  std::string address_;
  std::thread thread_;
  std::mutex mutex_;  // of what follows
  std::map<std::string, std::vector<Answer>> answers_;
  std::vector<Request> requests_;
};

}  // namespace caisson::cli
