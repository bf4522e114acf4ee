// A connection to something that listens inside: a TCP port of the loopback, or a unix socket.
//
// The peer's input goes to the connection, what comes back is the output, and each direction ends
// by itself. The guest connects itself, without waiting: 127.0.0.1 first, then ::1. An EVENT with
// kAddress tells that the connection stands.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "guest/stream.h"

namespace caisson::guest {

class DialStream final : public Stream {
 public:
  static Result<std::unique_ptr<DialStream>> open(std::uint32_t id,
                                                  const proto::FieldReader& fields);

  void prepare(Poller& poller) override;
  void service(const Poller& poller, Channel& channel) override;
  bool produce(Channel& channel) override;
  Status take(const proto::Frame& frame, Channel& channel) override;
  bool reaped(pid_t /*pid*/, int /*status*/, const rusage& /*usage*/,
              Channel& /*channel*/) override {
    return false;
  }
  void kill() override { socket_.reset(); }
  bool finished() const override { return closed_; }

 private:
  struct Target {
    std::string address;  // 127.0.0.1, ::1, or the socket's path
    std::uint16_t port = 0;
  };

  explicit DialStream(std::uint32_t id) : id_(id) {}
  static Result<std::vector<Target>> targets_of(const proto::FieldReader& fields);
  // Begins to connect to the next target that does not fail at once.
  Status connect_next();
  void connected(Channel& channel);
  void write_input(Channel& channel);
  void close(Channel& channel, const Status& status);

  std::uint32_t id_;
  std::vector<Target> targets_;
  std::size_t target_ = 0;  // the next to try
  Fd socket_;
  bool connecting_ = false;
  bool readable_ = false;
  bool output_finished_ = false;
  std::size_t index_ = Poller::kNone;
  std::uint64_t output_credit_ = proto::kInitialCredit;
  std::string input_;
  std::size_t input_offset_ = 0;
  std::uint64_t input_credit_ = proto::kInitialCredit;
  std::uint32_t input_returned_ = 0;
  bool input_finished_ = false;
  bool input_shut_ = false;
  bool closed_ = false;
};

}  // namespace caisson::guest
