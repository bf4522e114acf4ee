#include "guest/guest.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "guest/confine.h"
#include "guest/dial.h"
#include "guest/exec.h"
#include "guest/metrics.h"
#include "guest/relay.h"

namespace caisson::guest {
namespace {

using proto::ControlOperation;
using proto::FrameType;
using proto::Kind;
using proto::Tag;

// Four descriptors a stream, and what is on the way in.
constexpr rlim_t kOpenFiles = proto::kMaxStreams * 4 + 256;
constexpr std::uint64_t kMaxShutdownGraceMs = 60'000;
// How often a shutdown looks whether everything has ended.
constexpr auto kShutdownLook = std::chrono::milliseconds(20);

bool is_init() {
  return ::getpid() == 1;
}

// Descriptors 0 to 2 are a command's; no descriptor of the guest's may ever get one of these
// numbers.
Status occupy_standard_descriptors() {
  while (true) {
    const int fd = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    if (fd < 0) return fail_errno("open /dev/null");
    if (fd > 2) {
      ::close(fd);
      return {};
    }
  }
}

// Room for every stream's descriptors; returns what it was.
Result<rlimit> raise_open_files() {
  rlimit before{};
  if (::getrlimit(RLIMIT_NOFILE, &before) != 0) return fail_errno("getrlimit of open files");
  const rlimit wanted{std::max(before.rlim_cur, std::min(kOpenFiles, before.rlim_max)),
                      before.rlim_max};
  if (::setrlimit(RLIMIT_NOFILE, &wanted) != 0) return fail_errno("setrlimit of open files");
  return before;
}

Result<Fd> take_signals() {
  sigset_t all;
  ::sigfillset(&all);
  if (::sigprocmask(SIG_SETMASK, &all, nullptr) != 0) return fail_errno("sigprocmask");
  // A starter that ignored a signal would hand that down to every command, and an ignored SIGCHLD
  // would make waiting impossible.
  struct sigaction defaults{};
  defaults.sa_handler = SIG_DFL;
  for (int signal = 1; signal <= SIGRTMAX; ++signal) ::sigaction(signal, &defaults, nullptr);
  sigset_t child;
  ::sigemptyset(&child);
  ::sigaddset(&child, SIGCHLD);
  Fd signals(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals.valid()) return fail_errno("signalfd");
  return signals;
}

}  // namespace

std::size_t Poller::add(int fd, short events) {
  if (fd < 0) return kNone;
  entries_.push_back({fd, events, 0});
  return entries_.size() - 1;
}

void Poller::wake_within(std::int64_t timeout_ms) {
  if (timeout_ms_ < 0 || timeout_ms < timeout_ms_) timeout_ms_ = timeout_ms;
}

Status Poller::wait() {
  if (::poll(entries_.data(), entries_.size(), static_cast<int>(timeout_ms_)) < 0) {
    if (errno != EINTR) return fail_errno("poll");
    for (pollfd& entry : entries_) entry.revents = 0;
  }
  return {};
}

OomScore OomScore::open() {
  OomScore score;
  Fd file(::open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC));
  char text[16];
  const ssize_t size = file.valid() ? ::read(file.get(), text, sizeof(text)) : -1;
  if (size <= 0) return score;
  const auto [end, error] = std::from_chars(text, text + size, score.score_);
  if (error == std::errc()) score.file_ = std::move(file);
  return score;
}

void OomScore::set(int score) const {
  if (!file_.valid()) return;
  const std::string text = std::to_string(std::min(score, kMost));
  // Refused or not, the command runs.
  [[maybe_unused]] const ssize_t written = ::pwrite(file_.get(), text.data(), text.size(), 0);
}

Guest::Guest(Channel channel, Inside inside, Fd signals)
    : channel_(std::move(channel)), inside_(std::move(inside)), signals_(std::move(signals)) {}

Guest::~Guest() = default;

Result<std::unique_ptr<Guest>> Guest::create(GuestOptions options) {
  // For this moment, in which nothing else runs inside: its files in /proc are its own then.
  if (::prctl(PR_SET_DUMPABLE, 1) != 0) return fail_errno("prctl PR_SET_DUMPABLE");
  options.inside.oom_score = OomScore::open();
  if (!is_off(options.inside.disabled_mechanisms, Mechanism::kDumpable) &&
      ::prctl(PR_SET_DUMPABLE, 0) != 0)
    return fail_errno("prctl PR_SET_DUMPABLE");
  // Outside a pid namespace (the tests) orphans are adopted too, so that reaping them is the same.
  if (!is_init() && ::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0)
    return fail_errno("prctl PR_SET_CHILD_SUBREAPER");
  TRY(occupy_standard_descriptors());
  // The domain that all commands share: their signals and abstract sockets stay in the sandbox. The
  // guest is born without capabilities, and with no_new_privs unless set-user-ID programs are to
  // work inside (privileges: sudo); then each command's own domain is all there is.
  if (is_init() && ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 &&
      !is_off(options.inside.disabled_mechanisms, Mechanism::kLandlock))
    TRY(enter_landlock(LandlockScope::kSignalsAndSockets));
  TRY_ASSIGN(options.inside.open_files, raise_open_files());
  TRY_ASSIGN(Fd signals, take_signals());
  for (const Fd* space : {&options.inside.userns, &options.inside.cgroup_ns}) {
    if (space->valid() && ::fcntl(space->get(), F_SETFD, FD_CLOEXEC) != 0)
      return fail_errno("namespace descriptor");
  }
  TRY_ASSIGN(Channel channel,
             Channel::create(std::move(options.channel_in), std::move(options.channel_out)));
  std::unique_ptr<Guest> guest(
      new Guest(std::move(channel), std::move(options.inside), std::move(signals)));
  return guest;
}

Status Guest::run() {
  channel_.send(proto::encode_frame(0, FrameType::kHello, 0, proto::hello_payload()));
  Status status = channel_.flush();
  reap();  // a child of the time before this process was the guest
  while (status) {
    poller_.clear();
    const bool takes = !channel_.congested();
    const std::size_t in = poller_.add(takes ? channel_.in_fd() : -1, POLLIN);
    const std::size_t out = poller_.add(channel_.wants_write() ? channel_.out_fd() : -1, POLLOUT);
    const std::size_t signals = poller_.add(signals_.get(), POLLIN);
    for (auto& [id, stream] : streams_) stream->prepare(poller_);
    if (shutdown_) poller_.wake_within(kShutdownLook.count());
    if (room_again_) poller_.wake_within(0);
    status = poller_.wait();
    if (!status) break;
    if (poller_.ready(signals) != 0) reap();
    for (auto& [id, stream] : streams_) stream->service(poller_, channel_);
    if (poller_.ready(in) != 0) {
      Result<bool> open = channel_.receive();
      if (!open) status = fail(std::move(open).error());
      if (!status || !*open) break;
      status = take_frames();
      if (!status) break;
    } else if ((poller_.ready(out) & (POLLERR | POLLHUP)) != 0) {
      break;
    }
    produce();
    if (ending_) settle_ending();
    const bool was_full = channel_.data_room() == nullptr;
    status = channel_.flush();
    // A stream that had a frame ready and no room for it has no descriptor that would wake us.
    room_again_ = was_full && !channel_.wants_write();
    if (shutdown_ && shutdown_is_due()) {
      close_stream(shutdown_->stream);
      status = channel_.flush();
      break;
    }
  }
  end_everything();
  // A peer that went away while something was on its way to it has ended the channel all the same.
  if (!status &&
      (status.error().error_number() == EPIPE || status.error().error_number() == ECONNRESET))
    return {};
  return status;
}

Status Guest::take_frames() {
  for (;;) {
    TRY_ASSIGN(const std::optional<proto::Frame> frame, channel_.next());
    if (!frame) return {};
    TRY(take_frame(*frame));
  }
}

Status Guest::take_frame(const proto::Frame& frame) {
  const std::uint32_t id = frame.header.stream;
  if (!hello_taken_) return take_hello(frame);
  if (id == 0)
    return fail(Error::invalid("channel: a frame of type " +
                               std::to_string(static_cast<int>(frame.header.type)) +
                               " on stream 0 after the hello"));
  if (frame.header.type == FrameType::kHello)
    return fail(Error::invalid("channel: a hello on stream " + std::to_string(id)));
  if (frame.header.type == FrameType::kOpen) {
    if (id % 2 == 0 || id <= highest_stream_)
      return fail(Error::invalid("channel: stream " + std::to_string(id) +
                                 " opened; numbers are odd and grow, the last was " +
                                 std::to_string(highest_stream_)));
    highest_stream_ = id;
    // Whatever becomes of the frame, its descriptors leave the queue with it.
    TRY_ASSIGN(std::vector<Fd> descriptors, take_descriptors(frame));
    open_stream(frame, std::move(descriptors));
    return {};
  }
  const auto found = streams_.find(id);
  if (found == streams_.end()) {
    // A stream that this side has closed: the peer had sent the frame before it knew.
    if (id > highest_stream_)
      close_with_error(id, Error::invalid("stream " + std::to_string(id) + " was never opened"));
    return {};
  }
  if (Status taken = found->second->take(frame, channel_); !taken) {
    streams_.erase(found);
    close_with_error(id, taken.error());
  }
  return {};
}

Status Guest::take_hello(const proto::Frame& frame) {
  if (frame.header.stream != 0 || frame.header.type != FrameType::kHello)
    return fail(Error::invalid("channel: the first frame is not a hello"));
  if (const auto common = proto::check_hello(frame.payload); !common) {
    close_with_error(0, common.error());
    TRY(channel_.flush());
    return fail(common.error());
  }
  hello_taken_ = true;
  return {};
}

Result<std::vector<Fd>> Guest::take_descriptors(const proto::Frame& frame) {
  TRY_ASSIGN(const proto::FieldReader fields,
             proto::FieldReader::parse(frame.payload, proto::FieldReader::Critical::kIgnore));
  std::vector<Fd> descriptors;
  const std::uint64_t count = fields.number_or_none(Tag::kCgroup).value_or(0) +
                              fields.number_or_none(Tag::kBirthCgroup).value_or(0);
  while (descriptors.size() < count) {
    TRY_ASSIGN(Fd descriptor, channel_.take_descriptor());
    descriptors.push_back(std::move(descriptor));
  }
  return descriptors;
}

void Guest::open_stream(const proto::Frame& frame, std::vector<Fd> descriptors) {
  Result<std::unique_ptr<Stream>> stream = make_stream(frame, std::move(descriptors));
  if (!stream)
    close_with_error(frame.header.stream, stream.error());
  else if (*stream)
    streams_.emplace(frame.header.stream, std::move(*stream));
}

Result<std::unique_ptr<Stream>> Guest::make_stream(const proto::Frame& frame,
                                                   std::vector<Fd> descriptors) {
  const std::uint32_t id = frame.header.stream;
  TRY_ASSIGN(const proto::FieldReader fields, proto::FieldReader::parse(frame.payload));
  if (streams_.size() >= proto::kMaxStreams)
    return fail(Error::exhausted("channel: " + std::to_string(streams_.size()) +
                                 " streams are open, at most " +
                                 std::to_string(proto::kMaxStreams) + " are allowed"));
  switch (static_cast<Kind>(frame.header.detail)) {
    case Kind::kExec: {
      TRY_ASSIGN(ExecRequest request, ExecRequest::parse(fields));
      return ExecStream::open(id, std::move(request), std::move(descriptors), inside_, channel_);
    }
    case Kind::kFile:
      return RelayStream::open(id, file_worker, WorkerRights::kUser, fields, inside_);
    case Kind::kWatch:
      return RelayStream::open(id, watch_worker, WorkerRights::kUser, fields, inside_);
    case Kind::kDial:
      return DialStream::open(id, fields);
    case Kind::kMetrics:
      return RelayStream::open(
          id,
          [before = processor_time_of_the_dead()](const proto::FieldReader&, WorkerLink& link) {
            proto::Fields event;
            for (const auto& [name, value] : sample_metrics(before))
              event.put(Tag::kMetricName, name).put_u64(Tag::kMetricValue, value);
            return link.event(event);
          },
          WorkerRights::kGuest, fields, inside_);
    case Kind::kControl:
      return control(id, fields);
    default:
      return fail(Error(Code::kUnimplemented, "channel: streams of kind " +
                                                  std::to_string(frame.header.detail) +
                                                  " are not known here"));
  }
}

Result<std::unique_ptr<Stream>> Guest::control(std::uint32_t id, const proto::FieldReader& fields) {
  TRY_ASSIGN(const std::uint64_t operation, fields.number(Tag::kControlOperation));
  switch (static_cast<ControlOperation>(operation)) {
    case ControlOperation::kShutdown:
      TRY(begin_shutdown(id, fields));
      return nullptr;
    case ControlOperation::kPing:
      close_stream(id);
      return nullptr;
    case ControlOperation::kEndProcesses:
      TRY(begin_ending(id));
      return nullptr;
    case ControlOperation::kListProcesses:
      return RelayStream::open(id, process_list_worker, WorkerRights::kGuest, fields, inside_);
    case ControlOperation::kSetTime:
    case ControlOperation::kCloseConnections:
    case ControlOperation::kReseed:
      return fail(Error(Code::kUnimplemented,
                        "control: the sandbox shares its kernel with the host, so its clock, its "
                        "connections and its random numbers never have to be set anew"));
    case ControlOperation::kSetDeadline:
    case ControlOperation::kFreeze:
    case ControlOperation::kThaw:
    case ControlOperation::kUsage:
    case ControlOperation::kListCommands:
    case ControlOperation::kSettle:
    case ControlOperation::kHold:
    case ControlOperation::kRelease:
    case ControlOperation::kReboot:
    case ControlOperation::kLimits:
    case ControlOperation::kListVerdicts:
    case ControlOperation::kSetNetwork:
      break;  // the supervisor's
  }
  return fail(Error(Code::kUnimplemented,
                    "control: operation " + std::to_string(operation) + ", allowed are 1 to 7"));
}

// SIGTERM now; the end comes when nothing runs any more, or with the deadline.
Status Guest::begin_shutdown(std::uint32_t id, const proto::FieldReader& fields) {
  std::uint64_t grace_ms = 0;
  if (fields.has(Tag::kTimeLimitMs)) {
    TRY_ASSIGN(grace_ms, fields.number(Tag::kTimeLimitMs));
  }
  if (grace_ms > kMaxShutdownGraceMs)
    return fail(Error::invalid("shutdown: " + std::to_string(grace_ms) + " ms of grace, at most " +
                               std::to_string(kMaxShutdownGraceMs) + " are allowed"));
  if (shutdown_) return fail(Error::precondition("shutdown: it has begun already"));
  shutdown_ = Shutdown{id, std::chrono::steady_clock::now() + std::chrono::milliseconds(grace_ms)};
  if (grace_ms == 0) return {};
  if (is_init())
    ::kill(-1, SIGTERM);
  else
    for (auto& [stream_id, stream] : streams_) stream->terminate();
  return {};
}

bool Guest::has_children() {
  siginfo_t info;
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

bool Guest::shutdown_is_due() const {
  return std::chrono::steady_clock::now() >= shutdown_->deadline || !has_children();
}

// The answer comes when they are gone (settle_ending()), so that who asked finds nothing running.
Status Guest::begin_ending(std::uint32_t id) {
  if (ending_) return fail(Error::precondition("end processes: it has begun already"));
  ending_ = id;
  end_everything();
  return {};
}

void Guest::settle_ending() {
  if (has_children()) return;
  close_stream(*std::exchange(ending_, std::nullopt));
}

void Guest::close_stream(std::uint32_t id) {
  channel_.send(proto::encode_frame(id, FrameType::kClose, 0, {}));
}

void Guest::close_with_error(std::uint32_t id, const Error& error) {
  proto::Fields fields;
  fields.put_error(error);
  channel_.send(proto::encode_frame(id, FrameType::kClose, 0, fields.bytes()));
}

// Every process that has ended, also those whose parent is gone.
void Guest::reap() {
  signalfd_siginfo ignored[8];
  while (::read(signals_.get(), ignored, sizeof(ignored)) > 0) {
  }
  for (;;) {
    int status = 0;
    rusage usage{};
    const pid_t pid = ::wait4(-1, &status, WNOHANG | __WALL, &usage);
    if (pid <= 0) return;
    for (auto& [id, stream] : streams_)
      if (stream->reaped(pid, status, usage, channel_)) break;
  }
}

// Gives turns in a circle, beginning behind the stream that had the last one, until the channel is
// full or nobody has anything.
void Guest::produce() {
  bool any = true;
  while (any && !streams_.empty()) {
    any = false;
    auto next = streams_.upper_bound(last_turn_);
    for (std::size_t i = streams_.size(); i-- > 0;) {
      if (next == streams_.end()) next = streams_.begin();
      if (next->second->produce(channel_)) {
        any = true;
        last_turn_ = next->first;
      }
      ++next;
    }
  }
  std::erase_if(streams_, [](const auto& entry) { return entry.second->finished(); });
}

void Guest::end_everything() {
  for (auto& [id, stream] : streams_) stream->kill();
  // Only as PID 1 does -1 mean "everything in the sandbox"; anywhere else it is the whole host.
  if (is_init()) ::kill(-1, SIGKILL);
}

}  // namespace caisson::guest
