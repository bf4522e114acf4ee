#include "guest/relay.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace caisson::guest {
namespace {

using proto::FrameType;

constexpr auto kCancelGrace = std::chrono::seconds(1);
constexpr std::uint32_t kCreditPortion = proto::kInitialCredit / 4;
constexpr auto kInput = static_cast<std::uint8_t>(proto::Channel::kIn);
constexpr auto kOutput = static_cast<std::uint8_t>(proto::Channel::kOut);

}  // namespace

Result<std::unique_ptr<RelayStream>> RelayStream::open(std::uint32_t id, const WorkerMain& work,
                                                       WorkerRights rights,
                                                       const proto::FieldReader& fields,
                                                       const Inside& inside) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("socketpair");
  std::unique_ptr<RelayStream> stream(new RelayStream(id));
  stream->socket_ = Fd(ends[0]);
  Fd theirs(ends[1]);
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork");
  if (pid == 0) run_worker(work, rights, fields, inside, WorkerLink(std::move(theirs), id));
  stream->pid_ = pid;
  return stream;
}

RelayStream::~RelayStream() {
  kill();
}

void RelayStream::kill() {
  if (pid_ > 0 && !exit_status_) ::kill(pid_, SIGKILL);
}

void RelayStream::prepare(Poller& poller) {
  const bool reads = reading_ && !next_;
  const bool writes = has_outgoing();
  index_ = Poller::kNone;
  if (reads || writes)
    index_ = poller.add(socket_.get(),
                        static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)));
  if (cancelled_ && !exit_status_) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*cancelled_ + kCancelGrace - Clock::now());
    if (left.count() > 0) poller.wake_within(left.count());
  }
}

void RelayStream::service(const Poller& poller, Channel& channel) {
  const short ready = poller.ready(index_);
  if ((ready & (POLLIN | POLLHUP | POLLERR)) != 0) readable_ = true;
  if ((ready & POLLOUT) != 0) write_worker(channel);
  if (cancelled_ && Clock::now() - *cancelled_ >= kCancelGrace) kill();
}

void RelayStream::read_worker() {
  while (!next_ && !broken_) {
    Result<std::optional<proto::Frame>> frame = decoder_.next();
    if (!frame) {
      broken_ = std::move(frame).error();
      return;
    }
    if (*frame) {
      broken_ = problem_of(**frame);
      next_ = std::move(*frame);
      return;
    }
    if (!readable_ || !reading_) return;
    readable_ = false;
    char bytes[Channel::kDataChunk];
    const ssize_t count = ::recv(socket_.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      reading_ = false;
      return;
    }
    decoder_.feed(std::string_view(bytes, static_cast<std::size_t>(count)));
  }
}

std::optional<Error> RelayStream::problem_of(const proto::Frame& frame) const {
  const proto::Header& header = frame.header;
  const bool data = header.type == FrameType::kData || header.type == FrameType::kFinish;
  const bool other = header.type == FrameType::kEvent || header.type == FrameType::kClose;
  if (header.stream == id_ && ((data && header.detail == kOutput) || other) &&
      (!data || frame.payload.size() <= Channel::kDataChunk))
    return std::nullopt;
  return Error::internal("the worker sent a frame that it may not send");
}

bool RelayStream::produce(Channel& channel) {
  if (closed_) return false;
  read_worker();
  if (broken_) {
    close(channel, *broken_);
    return false;
  }
  if (cancelled_) {
    next_.reset();
    if (exit_status_) close(channel, Error(Code::kCancelled, "cancelled by the peer"));
    return false;
  }
  if (next_) {
    const bool data = next_->header.type == FrameType::kData;
    if (data && next_->payload.size() > output_credit_) return false;
    if (!channel.append(
            proto::encode_frame(id_, next_->header.type, next_->header.detail, next_->payload)))
      return false;
    if (data) output_credit_ -= next_->payload.size();
    if (next_->header.type == FrameType::kClose) closed_ = true;
    next_.reset();
    return true;
  }
  if (exit_status_ && !reading_) {
    std::string reason = "the worker ended early";
    if (WIFSIGNALED(*exit_status_))
      reason += ", by signal " + std::to_string(WTERMSIG(*exit_status_));
    close(channel, Error(Code::kAborted, std::move(reason)));
  }
  return false;
}

void RelayStream::close(Channel& channel, const Error& error) {
  proto::Fields fields;
  fields.put_error(error);
  channel.send(proto::encode_frame(id_, FrameType::kClose, 0, fields.bytes()));
  closed_ = true;
}

Status RelayStream::take(const proto::Frame& frame, Channel& channel) {
  switch (frame.header.type) {
    case FrameType::kData:
      if (frame.header.detail != kInput)
        return fail(Error::invalid("stream: data for an output channel"));
      if (input_finished_) return fail(Error::invalid("stream: data after the input was finished"));
      if (frame.payload.size() > input_credit_)
        return fail(Error::invalid("stream: " + std::to_string(frame.payload.size()) +
                                   " bytes of input, the credit is " +
                                   std::to_string(input_credit_)));
      input_credit_ -= frame.payload.size();
      break;
    case FrameType::kFinish:
      if (frame.header.detail != kInput)
        return fail(Error::invalid("stream: only the input can be finished"));
      input_finished_ = true;
      break;
    case FrameType::kCredit: {
      TRY_ASSIGN(const std::uint32_t bytes, proto::parse_credit(frame.payload));
      if (frame.header.detail != kOutput)
        return fail(Error::invalid("stream: credit for a channel that this side does not send"));
      output_credit_ += bytes;
      return {};
    }
    case FrameType::kClose:
      cancelled_ = Clock::now();
      socket_.reset();
      reading_ = false;
      drop_input();
      return {};
    default:
      return fail(Error::invalid("stream: a frame of type " +
                                 std::to_string(static_cast<int>(frame.header.type)) +
                                 " does not belong on this stream"));
  }
  if (cancelled_) return {};
  input_ += frame.payload;
  write_worker(channel);
  return {};
}

// Whether there is a frame to write; makes the next one where the last is out. Small frames of the
// peer become one.
bool RelayStream::has_outgoing() {
  if (outgoing_offset_ < outgoing_.size()) return true;
  outgoing_offset_ = 0;
  outgoing_.clear();
  outgoing_payload_ = 0;
  if (!input_.empty()) {
    const std::string_view chunk = std::string_view(input_).substr(0, Channel::kDataChunk);
    outgoing_ = proto::encode_frame(id_, FrameType::kData, kInput, chunk);
    outgoing_payload_ = static_cast<std::uint32_t>(chunk.size());
    input_.erase(0, chunk.size());
  } else if (input_finished_ && !finish_sent_) {
    outgoing_ = proto::encode_frame(id_, FrameType::kFinish, kInput, {});
    finish_sent_ = true;
  }
  return !outgoing_.empty();
}

void RelayStream::drop_input() {
  input_.clear();
  outgoing_.clear();
  outgoing_offset_ = 0;
  finish_sent_ = true;
}

void RelayStream::write_worker(Channel& channel) {
  while (has_outgoing()) {
    const ssize_t count = ::send(socket_.get(), outgoing_.data() + outgoing_offset_,
                                 outgoing_.size() - outgoing_offset_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (count < 0) {  // the worker is done; its CLOSE says how
      drop_input();
      return;
    }
    outgoing_offset_ += static_cast<std::size_t>(count);
    if (outgoing_offset_ == outgoing_.size()) input_returned_ += outgoing_payload_;
  }
  if (input_returned_ < kCreditPortion || input_finished_) return;
  channel.send(proto::encode_credit(id_, proto::Channel::kIn, input_returned_));
  input_credit_ += input_returned_;
  input_returned_ = 0;
}

bool RelayStream::reaped(pid_t pid, int status, const rusage& /*usage*/, Channel& /*channel*/) {
  if (pid != pid_ || exit_status_) return false;
  exit_status_ = status;
  readable_ = true;  // what it said last may still be in the socket
  return true;
}

}  // namespace caisson::guest
