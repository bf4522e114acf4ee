// A stream whose work is done by a worker process: the guest's side of worker.h.
//
// Frames go through as they are, in both directions, within the credit of each. The worker is our
// own program, but it has touched hostile files: its frames are decoded and checked like a peer's,
// and one that does not fit ends the stream. When the worker ends without a CLOSE, the relay says
// so. Owns the socket; the process is asked to end by closing it, and killed a second later.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "guest/stream.h"
#include "guest/worker.h"

namespace caisson::guest {

class RelayStream final : public Stream {
 public:
  static Result<std::unique_ptr<RelayStream>> open(std::uint32_t id, const WorkerMain& work,
                                                   WorkerRights rights,
                                                   const proto::FieldReader& fields,
                                                   const Inside& inside);
  ~RelayStream() override;

  void prepare(Poller& poller) override;
  void service(const Poller& poller, Channel& channel) override;
  bool produce(Channel& channel) override;
  Status take(const proto::Frame& frame, Channel& channel) override;
  bool reaped(pid_t pid, int status, const rusage& usage, Channel& channel) override;
  void kill() override;
  bool finished() const override { return closed_; }

 private:
  using Clock = std::chrono::steady_clock;

  explicit RelayStream(std::uint32_t id) : id_(id) {}
  void read_worker();
  bool has_outgoing();
  void drop_input();
  void write_worker(Channel& channel);
  void close(Channel& channel, const Error& error);
  std::optional<Error> problem_of(const proto::Frame& frame) const;

  std::uint32_t id_;
  pid_t pid_ = -1;
  Fd socket_;
  std::size_t index_ = Poller::kNone;
  bool reading_ = true;  // the worker may still send
  bool readable_ = false;
  proto::Decoder decoder_;
  std::optional<proto::Frame> next_;  // read, and not yet passed on
  std::uint64_t output_credit_ = proto::kInitialCredit;
  std::string input_;     // of the peer, not yet framed for the worker
  std::string outgoing_;  // the frame that is being written to the worker
  std::size_t outgoing_offset_ = 0;
  std::uint32_t outgoing_payload_ = 0;
  std::uint64_t input_credit_ = proto::kInitialCredit;
  std::uint32_t input_returned_ = 0;  // taken by the worker, and not yet granted again
  bool input_finished_ = false;
  bool finish_sent_ = false;
  std::optional<int> exit_status_;
  std::optional<Clock::time_point> cancelled_;
  std::optional<Error> broken_;
  bool closed_ = false;
};

}  // namespace caisson::guest
