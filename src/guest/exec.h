// One command: its process, its pipes or terminal, and what the peer hears of it.
//
// The command's own exit ends the stream. Whoever still holds its pipes then (a daemon that it left
// behind) gets 200 ms, after which only bytes that were in the pipes at the exit are still passed
// on. Nothing waits for a command that does not read its input: the bytes wait within the peer's
// credit. Owns every descriptor; kills the command's session when it is destroyed early.
#pragma once

#include <signal.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "guest/exec_child.h"
#include "guest/stream.h"

namespace caisson::guest {

class ExecStream final : public Stream {
 public:
  // Forks and returns at once; how the start went is told by the stream's frames. `cgroups` are the
  // descriptors that came with the frame. An error: there is no stream.
  static Result<std::unique_ptr<ExecStream>> open(std::uint32_t id, ExecRequest request,
                                                  std::vector<Fd> cgroups, const Inside& inside,
                                                  const Channel& channel);
  ~ExecStream() override;

  void prepare(Poller& poller) override;
  void service(const Poller& poller, Channel& channel) override;
  bool produce(Channel& channel) override;
  Status take(const proto::Frame& frame, Channel& channel) override;
  bool reaped(pid_t pid, int status, const rusage& usage, Channel& channel) override;
  void kill() override;
  void terminate() override { send_signal(SIGTERM); }
  bool finished() const override { return closed_; }

 private:
  using Clock = std::chrono::steady_clock;

  struct Output {
    Fd fd;
    proto::Channel channel;
    std::uint64_t credit = proto::kInitialCredit;
    std::uint64_t owed = 0;  // bytes that were in the pipe when the command ended
    bool ready = false;
    std::size_t poll_index = Poller::kNone;
  };
  struct Exit {
    int status = 0;
    rusage usage{};
    Clock::time_point when;
  };

  ExecStream(std::uint32_t id, bool terminal) : id_(id), terminal_(terminal) {}
  Status open_pipes(const ExecRequest& request, ExecDescriptors& child);
  void read_report(Channel& channel);
  void announce_start(Channel& channel);
  void write_input(Channel& channel);
  bool finish_input();
  bool type_end();
  Status take_data(const proto::Frame& frame);
  Status take_control(const proto::Frame& frame);
  Status resize(std::string_view size);
  void apply_size();
  void send_signal(int signal);
  bool read_output(Output& output, Channel& channel);
  void close_output(Output& output, Channel& channel);
  void close_if_over(Channel& channel);
  bool grace_is_over() const;

  std::uint32_t id_;
  bool terminal_;
  pid_t pid_ = -1;
  Fd report_;
  std::size_t report_index_ = Poller::kNone;
  bool started_ = false;     // the kStarted event is out
  bool discarding_ = false;  // the peer has closed: nobody wants the output
  Fd listener_;
  std::optional<ExecFailure> failure_;

  Fd input_;
  std::string input_buffer_;
  std::size_t input_offset_ = 0;
  std::uint64_t input_credit_ = 0;    // that the peer has left
  std::uint32_t input_returned_ = 0;  // written, and not yet granted again
  bool input_finished_ = false;
  bool end_typed_ = false;  // a terminal's end-of-file character is in the buffer
  std::size_t input_index_ = Poller::kNone;

  std::optional<ExecRequest::WindowSize> new_size_;  // came before the terminal did
  Output outputs_[2];
  std::size_t turn_ = 0;
  std::optional<Exit> exit_;
  bool closed_ = false;
};

}  // namespace caisson::guest
