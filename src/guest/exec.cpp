#include "guest/exec.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "guest/sessions.h"

namespace caisson::guest {
namespace {

using proto::FrameType;
using proto::Tag;

constexpr auto kGrace = std::chrono::milliseconds(200);
// Credit goes back in portions of at least this size, so that small writes cost no frame each.
constexpr std::uint32_t kCreditPortion = proto::kInitialCredit / 4;

struct Pipe {
  Fd read, write;
};

Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("pipe");
  Pipe pipe{Fd(ends[0]), Fd(ends[1])};
  // A command that runs as another user can open its own descriptors again by name (/dev/stdout);
  // nobody else can reach the inode.
  if (::fchmod(ends[0], 0666) != 0) return fail_errno("fchmod of a pipe");
  return pipe;
}

// The command can open the far end's pipe a second time and take bytes out of it, or fill it,
// between our poll and our call; only a descriptor that never waits is safe in this process.
Status never_wait(const Fd& fd) {
  if (::fcntl(fd.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno("fcntl of a pipe");
  return {};
}

std::uint64_t microseconds(const timeval& time) {
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000 +
         static_cast<std::uint64_t>(time.tv_usec);
}

std::uint64_t bytes_inside(int fd) {
  int count = 0;
  return ::ioctl(fd, FIONREAD, &count) == 0 && count > 0 ? static_cast<std::uint64_t>(count) : 0;
}

// fork(2); the child is born in the v2 control group whose directory is given, if one is. Moving
// there afterwards would wait for every processor (cgroup_threadgroup_rwsem): milliseconds.
Result<pid_t> fork_into(const Fd& cgroup) {
  if (!cgroup.valid()) {
    const pid_t pid = ::fork();
    if (pid < 0) return fail_errno("fork");
    return pid;
  }
  clone_args arguments{};
  arguments.flags = CLONE_INTO_CGROUP;
  arguments.exit_signal = SIGCHLD;
  arguments.cgroup = static_cast<std::uint64_t>(cgroup.get());
  const long pid = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid < 0) return fail_errno("entering the command's control group");
  return static_cast<pid_t>(pid);
}

}  // namespace

Status ExecStream::open_pipes(const ExecRequest& request, ExecDescriptors& child) {
  outputs_[0].channel = proto::Channel::kOut;
  outputs_[1].channel = proto::Channel::kErr;
  if (request.has_input || request.terminal) input_credit_ = proto::kInitialCredit;
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("socketpair");
  report_ = Fd(ends[0]);
  child.report = Fd(ends[1]);
  if (request.terminal) return {};
  if (request.has_input) {
    TRY_ASSIGN(Pipe input, make_pipe());
    TRY(never_wait(input.write));
    child.input = std::move(input.read);
    input_ = std::move(input.write);
  }
  for (Output& output : outputs_) {
    TRY_ASSIGN(Pipe pipe, make_pipe());
    TRY(never_wait(pipe.read));
    output.fd = std::move(pipe.read);
    (output.channel == proto::Channel::kOut ? child.output : child.error) = std::move(pipe.write);
  }
  return {};
}

Result<std::unique_ptr<ExecStream>> ExecStream::open(std::uint32_t id, ExecRequest request,
                                                     std::vector<Fd> cgroups, const Inside& inside,
                                                     const Channel& channel) {
  ExecDescriptors child;
  child.userns_fd = inside.userns.get();
  child.cgroup_ns_fd = inside.cgroup_ns.get();
  child.open_files = inside.open_files;
  child.disabled_mechanisms = inside.disabled_mechanisms;
  child.cgroups = std::move(cgroups);
  Fd birth_cgroup;
  if (request.birth_cgroup && !child.cgroups.empty()) {
    birth_cgroup = std::move(child.cgroups.back());
    child.cgroups.pop_back();
  }
  if (request.want_listener && !channel.passes_descriptors())
    return fail(Error(Code::kUnimplemented,
                      "exec: no descriptor can travel over this channel, so "
                      "there is no way to send a listener"));
  std::unique_ptr<ExecStream> stream(new ExecStream(id, request.terminal.has_value()));
  TRY(stream->open_pipes(request, child));
  inside.oom_score.raise();
  const Result<pid_t> pid = fork_into(birth_cgroup);
  if (pid && *pid == 0) {
    birth_cgroup.reset();  // it leads out of the sandbox
    run_command(request, std::move(child));
  }
  inside.oom_score.restore();
  TRY_ASSIGN(stream->pid_, pid);
  return stream;
}

ExecStream::~ExecStream() {
  if (!exit_) kill();
}

void ExecStream::prepare(Poller& poller) {
  report_index_ = poller.add(report_.get(), POLLIN);
  input_index_ =
      input_offset_ < input_buffer_.size() ? poller.add(input_.get(), POLLOUT) : Poller::kNone;
  for (Output& output : outputs_) {
    const bool wanted = started_ && output.credit > 0;
    output.poll_index = wanted ? poller.add(output.fd.get(), POLLIN) : Poller::kNone;
  }
  if (exit_ && !closed_) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(exit_->when + kGrace - Clock::now());
    if (left.count() > 0) poller.wake_within(left.count());
  }
}

void ExecStream::service(const Poller& poller, Channel& channel) {
  if (poller.ready(report_index_) != 0) read_report(channel);
  if (poller.ready(input_index_) != 0) write_input(channel);
  for (Output& output : outputs_)
    if (poller.ready(output.poll_index) != 0) output.ready = true;
  close_if_over(channel);
}

// Everything that the child has to say up to its execve or its end.
void ExecStream::read_report(Channel& channel) {
  while (report_.valid()) {
    char bytes[2048];
    sys::ReceivedPart part = sys::receive_part(report_.get(), bytes, MSG_DONTWAIT);
    if (part.count < 0 && errno == EAGAIN) return;
    Fd descriptor;
    if (!part.descriptors.empty()) descriptor = std::move(part.descriptors.front());
    if (part.count <= 0) {
      report_.reset();
      if (!failure_) announce_start(channel);
    } else if (bytes[0] == static_cast<char>(ReportKind::kFailure)) {
      failure_ = parse_failure(std::string_view(bytes, static_cast<std::size_t>(part.count)));
      report_.reset();
    } else if (bytes[0] == static_cast<char>(ReportKind::kListener)) {
      listener_ = std::move(descriptor);
    } else if (bytes[0] == static_cast<char>(ReportKind::kTerminal)) {
      if (never_wait(descriptor)) {
        input_ = Fd(::fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 3));
        outputs_[0].fd = std::move(descriptor);
        apply_size();
        write_input(channel);
      }
    }
  }
}

void ExecStream::announce_start(Channel& channel) {
  started_ = true;
  if (discarding_) return;
  proto::Fields fields;
  fields.put_u32(Tag::kStarted, static_cast<std::uint32_t>(pid_));
  if (listener_.valid()) fields.put_u8(Tag::kListener, 1);
  channel.send(proto::encode_frame(id_, FrameType::kEvent, 0, fields.bytes()),
               std::move(listener_));
}

Status ExecStream::take(const proto::Frame& frame, Channel& channel) {
  switch (frame.header.type) {
    case FrameType::kData:
      TRY(take_data(frame));
      write_input(channel);
      return {};
    case FrameType::kFinish:
      if (frame.header.detail != static_cast<std::uint8_t>(proto::Channel::kIn))
        return fail(Error::invalid("exec: only the input can be finished"));
      input_finished_ = true;
      write_input(channel);
      return {};
    case FrameType::kCredit: {
      TRY_ASSIGN(const std::uint32_t bytes, proto::parse_credit(frame.payload));
      for (Output& output : outputs_)
        if (frame.header.detail == static_cast<std::uint8_t>(output.channel)) {
          output.credit += bytes;
          return {};
        }
      return fail(Error::invalid("exec: credit for the input, which only this side grants"));
    }
    case FrameType::kControl:
      return take_control(frame);
    case FrameType::kClose:
      // The peer has lost interest; it still hears how the command ended.
      // Killed before its pipes close, which could end it in another way first.
      discarding_ = true;
      kill();
      for (Output& output : outputs_) output.fd.reset();
      input_.reset();
      close_if_over(channel);
      return {};
    default:
      return fail(Error::invalid("exec: a frame of type " +
                                 std::to_string(static_cast<int>(frame.header.type)) +
                                 " does not belong on an open stream"));
  }
}

Status ExecStream::take_data(const proto::Frame& frame) {
  if (frame.header.detail != static_cast<std::uint8_t>(proto::Channel::kIn))
    return fail(Error::invalid("exec: data for an output channel"));
  if (input_finished_) return fail(Error::invalid("exec: data after the input was finished"));
  if (frame.payload.size() > input_credit_)
    return fail(Error::invalid("exec: " + std::to_string(frame.payload.size()) +
                               " bytes of input, the credit is " + std::to_string(input_credit_)));
  input_credit_ -= frame.payload.size();
  if (discarding_ || (!input_.valid() && report_.get() < 0)) return {};
  input_buffer_.erase(0, input_offset_);
  input_offset_ = 0;
  input_buffer_.append(frame.payload);
  return {};
}

void ExecStream::write_input(Channel& channel) {
  while (input_.valid() && input_offset_ < input_buffer_.size()) {
    const ssize_t count = ::write(input_.get(), input_buffer_.data() + input_offset_,
                                  input_buffer_.size() - input_offset_);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (count < 0) {
      // Nobody reads any more. The rest of what the peer may still send is dropped within its
      // credit, which does not come back.
      input_buffer_.clear();
      input_offset_ = 0;
      input_.reset();
      return;
    }
    input_offset_ += static_cast<std::size_t>(count);
    input_returned_ += static_cast<std::uint32_t>(count);
  }
  if (input_returned_ >= kCreditPortion && !input_finished_) {
    channel.send(proto::encode_credit(id_, proto::Channel::kIn, input_returned_));
    input_credit_ += input_returned_;
    input_returned_ = 0;
  }
  if (finish_input()) write_input(channel);
}

// Ends the command's input once everything before the end was written. True where there is more to
// write for that, once in a stream's life.
bool ExecStream::finish_input() {
  if (!input_finished_ || !input_.valid() || input_offset_ < input_buffer_.size()) return false;
  if (terminal_ && !end_typed_ && type_end()) return true;
  input_.reset();
  return false;
}

// A terminal has no end; the end-of-file character at the start of a line is what a program that
// reads lines takes for one. In the middle of a line the first only hands the line over.
bool ExecStream::type_end() {
  end_typed_ = true;
  termios settings{};
  if (::tcgetattr(input_.get(), &settings) != 0 || (settings.c_lflag & ICANON) == 0) return false;
  const bool within_line = !input_buffer_.empty() && input_buffer_.back() != '\n';
  const auto end = static_cast<char>(settings.c_cc[VEOF]);
  input_buffer_.assign(within_line ? 2 : 1, end);
  input_offset_ = 0;
  return true;
}

Status ExecStream::take_control(const proto::Frame& frame) {
  TRY_ASSIGN(const proto::FieldReader fields, proto::FieldReader::parse(frame.payload));
  if (fields.has(Tag::kSignal)) {
    TRY_ASSIGN(const std::uint64_t signal, fields.number(Tag::kSignal));
    if (signal < 1 || signal > static_cast<std::uint64_t>(SIGRTMAX))
      return fail(Error::invalid("exec: signal " + std::to_string(signal) + ", allowed are 1 to " +
                                 std::to_string(SIGRTMAX)));
    send_signal(static_cast<int>(signal));
  }
  if (fields.has(Tag::kResize)) {
    TRY_ASSIGN(const std::string_view size, fields.text(Tag::kResize));
    TRY(resize(size));
  }
  return {};
}

Status ExecStream::resize(std::string_view bytes) {
  TRY_ASSIGN(const ExecRequest::WindowSize size, parse_window_size(bytes));
  if (!terminal_) return fail(Error::invalid("exec: a resize, but the command has no terminal"));
  new_size_ = size;
  apply_size();
  return {};
}

void ExecStream::apply_size() {
  if (!new_size_ || !outputs_[0].fd.valid()) return;
  winsize window{};
  window.ws_col = new_size_->columns;
  window.ws_row = new_size_->rows;
  ::ioctl(outputs_[0].fd.get(), TIOCSWINSZ, &window);
  new_size_.reset();
}

void ExecStream::send_signal(int signal) {
  if (exit_ || pid_ <= 0) return;
  if (signal == SIGKILL) {
    kill();
  } else if (::kill(-pid_, signal) != 0 && errno == ESRCH) {
    ::kill(pid_, signal);  // not yet the leader of its own group
  }
}

void ExecStream::kill() {
  // Before the fork there is no process, and its number would mean "everybody".
  if (exit_ || pid_ <= 0) return;
  ::kill(pid_, SIGKILL);
  kill_session(pid_);
}

bool ExecStream::grace_is_over() const {
  return exit_ && Clock::now() - exit_->when >= kGrace;
}

bool ExecStream::produce(Channel& channel) {
  for (std::size_t i = 0; i < 2; ++i) {
    turn_ = 1 - turn_;
    if (outputs_[turn_].ready && read_output(outputs_[turn_], channel)) return true;
  }
  return false;
}

bool ExecStream::read_output(Output& output, Channel& channel) {
  if (!output.fd.valid() || output.credit == 0) return false;
  char* const room = channel.data_room();
  if (room == nullptr) return false;
  std::size_t wanted = std::min<std::size_t>(Channel::kDataChunk, output.credit);
  if (grace_is_over()) wanted = std::min<std::size_t>(wanted, output.owed);
  const ssize_t count = wanted == 0 ? 0 : ::read(output.fd.get(), room, wanted);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
    output.ready = false;
    output.owed = 0;  // whoever else reads the pipe has taken them
    return false;
  }
  if (count <= 0) {  // the end; a terminal says EIO
    output.ready = false;
    close_output(output, channel);
    return false;
  }
  const auto bytes = static_cast<std::size_t>(count);
  channel.commit(id_, FrameType::kData, static_cast<std::uint8_t>(output.channel), bytes);
  output.credit -= bytes;
  output.owed -= std::min<std::uint64_t>(output.owed, bytes);
  return true;
}

void ExecStream::close_output(Output& output, Channel& channel) {
  output.fd.reset();
  close_if_over(channel);
}

bool ExecStream::reaped(pid_t pid, int status, const rusage& usage, Channel& channel) {
  if (pid != pid_ || exit_) return false;
  read_report(channel);
  report_.reset();
  if (!failure_ && !started_) announce_start(channel);
  exit_ = Exit{status, usage, Clock::now()};
  input_.reset();
  for (Output& output : outputs_) {
    if (!output.fd.valid()) continue;
    output.owed = bytes_inside(output.fd.get());
    output.ready = output.credit > 0;
  }
  close_if_over(channel);
  return true;
}

void ExecStream::close_if_over(Channel& channel) {
  if (closed_ || !exit_) return;
  for (Output& output : outputs_)
    if (output.fd.valid() && (failure_ || (grace_is_over() && output.owed == 0))) output.fd.reset();
  if (outputs_[0].fd.valid() || outputs_[1].fd.valid()) return;

  proto::Fields fields;
  if (failure_) {
    fields.put_u32(Tag::kErrorCode, failure_->code).put(Tag::kErrorMessage, failure_->message);
    if (failure_->error_number != 0)
      fields.put_u32(Tag::kErrorErrno, static_cast<std::uint32_t>(failure_->error_number));
    if (failure_->exit_code != 0) fields.put_u32(Tag::kExitCode, failure_->exit_code);
    if (failure_->subject != 0) fields.put_u8(Tag::kErrorSubject, failure_->subject);
  } else {
    if (WIFSIGNALED(exit_->status)) {
      fields.put_u32(Tag::kExitSignal, static_cast<std::uint32_t>(WTERMSIG(exit_->status)));
      if (WCOREDUMP(exit_->status)) fields.put_u8(Tag::kCoreDumped, 1);
    } else {
      fields.put_u32(Tag::kExitCode, static_cast<std::uint32_t>(WEXITSTATUS(exit_->status)));
    }
    fields.put_u64(Tag::kUserMicros, microseconds(exit_->usage.ru_utime));
    fields.put_u64(Tag::kSystemMicros, microseconds(exit_->usage.ru_stime));
    fields.put_u64(Tag::kPeakRss, static_cast<std::uint64_t>(exit_->usage.ru_maxrss) * 1024);
  }
  // Behind its own DATA: those frames are in the buffer already, which control frames never pass.
  channel.send(proto::encode_frame(id_, FrameType::kClose, 0, fields.bytes()));
  closed_ = true;
}

}  // namespace caisson::guest
