// An Exchange that remembers what was answered, for the log and the counters.
//
// It passes every call on to another one, which outlives it.
#pragma once

#include <cstdint>

#include "http/server.h"

namespace caisson::api {

class RecordedExchange final : public http::Exchange {
 public:
  explicit RecordedExchange(http::Exchange& inner) : inner_(inner) {
    target_ = inner.target();
    id_ = inner.id();
  }

  // 0: nothing was answered.
  int status() const { return begun() ? status_ : 0; }
  // Of the answer's body.
  std::uint64_t bytes() const { return bytes_; }
  bool aborted() const { return aborted_; }

  const http::RequestHead& request() const override { return inner_.request(); }
  std::string peer() const override { return inner_.peer(); }
  bool secure() const override { return inner_.secure(); }
  io::Async<Result<std::string>> read_some(std::size_t most) override {
    return inner_.read_some(most);
  }
  Status hold(std::size_t bytes) override { return inner_.hold(bytes); }
  void let_go() override { inner_.let_go(); }
  std::optional<std::uint64_t> body_length() const override { return inner_.body_length(); }
  io::Async<Status> respond(http::ResponseHead head, std::string body) override {
    note(head.status, body.size());
    return inner_.respond(std::move(head), std::move(body));
  }
  io::Async<Status> begin(http::ResponseHead head) override {
    note(head.status);
    return inner_.begin(std::move(head));
  }
  io::Async<Status> write(std::string_view bytes) override {
    bytes_ += bytes.size();
    return inner_.write(bytes);
  }
  io::Async<Status> end() override { return inner_.end(); }
  void abort() override {
    aborted_ = true;
    inner_.abort();
  }
  bool begun() const override { return inner_.begun(); }
  io::Async<void> wait_gone() override { return inner_.wait_gone(); }
  void on_gone(std::function<void()> call) override { inner_.on_gone(std::move(call)); }
  bool gone() const override { return inner_.gone(); }
  io::Async<Result<Upgraded>> upgrade(http::ResponseHead head) override {
    note(head.status);
    return inner_.upgrade(std::move(head));
  }

 private:
  // An answer that may not come to be (its head cannot be written, say); another follows then.
  void note(int status, std::uint64_t bytes = 0) {
    if (begun()) return;
    status_ = status;
    bytes_ = bytes;
  }

  http::Exchange& inner_;
  int status_ = 0;
  std::uint64_t bytes_ = 0;
  bool aborted_ = false;
};

}  // namespace caisson::api
