// The guest's tests: the real caisson-guest as an ordinary child, spoken to in frames.
//
// It is not PID 1 here, so it ends only what it started itself. As an ordinary user it gets a user
// namespace that maps that user alone, as a sandbox without an id range does; as root it gets none
// and commands run as whom they name. Every wait has a deadline.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/proto.h"
#include "base/sys.h"

namespace caisson::guest::testing {

using proto::Fields;
using proto::FrameType;
using proto::Kind;
using proto::Tag;

inline constexpr auto kDeadline = std::chrono::seconds(20);

// In a forked child: goes on as the guest. Its arguments begin with its name.
[[noreturn]] inline void become_guest(std::vector<std::string> arguments) {
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  // The guest cannot be traced, which the leak check of the sanitizer build would need.
  char leaks[] = "ASAN_OPTIONS=detect_leaks=0";
  char* environment[] = {leaks, nullptr};
  ::execve(CAISSON_GUEST, pointers.data(), environment);
  ::_exit(99);
}

// A user namespace with the caller as its only id, or none as root.
inline Fd own_user_namespace() {
  if (::geteuid() == 0) return {};
  int ready[2], done[2];
  if (::pipe2(ready, O_CLOEXEC) != 0 || ::pipe2(done, O_CLOEXEC) != 0) return {};
  const std::string uid_map = "0 " + std::to_string(::geteuid()) + " 1";
  const std::string gid_map = "0 " + std::to_string(::getegid()) + " 1";
  const pid_t holder = ::fork();
  if (holder == 0) {
    char byte = ::unshare(CLONE_NEWUSER) == 0 ? 'y' : 'n';
    if (::write(ready[1], &byte, 1) != 1) ::_exit(1);
    ::close(done[1]);
    [[maybe_unused]] const ssize_t waited = ::read(done[0], &byte, 1);
    ::_exit(0);
  }
  char byte = 'n';
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  const std::string directory = "/proc/" + std::to_string(holder);
  const auto write_map = [&](const char* name, const std::string& text) {
    const Fd file(::open((directory + "/" + name).c_str(), O_WRONLY | O_CLOEXEC));
    EXPECT_EQ(::write(file.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  };
  Fd space;
  if (byte == 'y') {
    write_map("setgroups", "deny");
    write_map("uid_map", uid_map);
    write_map("gid_map", gid_map);
    space = Fd(::open((directory + "/ns/user").c_str(), O_RDONLY | O_CLOEXEC));
  }
  ::close(ready[0]);
  ::close(ready[1]);
  ::close(done[0]);
  ::close(done[1]);
  ::waitpid(holder, nullptr, 0);
  return space;
}

// Whether the process ends before the deadline; one that nobody has waited for yet has ended.
inline bool ends(pid_t pid) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (std::chrono::steady_clock::now() < end) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    if (!std::getline(file, line)) return true;
    const std::size_t name_end = line.rfind(')');
    if (name_end != std::string::npos && line.substr(name_end + 1, 2) == " Z") return true;
    ::usleep(1000);
  }
  return false;
}

// All that came on one stream.
struct Seen {
  std::string output, error_output;
  std::vector<std::string> events;  // payloads
  std::uint64_t input_granted = 0;
  bool started = false;
  std::optional<std::string> close;

  proto::FieldReader end() const { return proto::FieldReader::parse(*close).value(); }
  proto::FieldReader event(std::size_t index) const {
    return proto::FieldReader::parse(events.at(index)).value();
  }
  std::optional<std::uint64_t> exit_code() const { return end().number_or_none(Tag::kExitCode); }
  std::optional<std::uint64_t> exit_signal() const {
    return end().number_or_none(Tag::kExitSignal);
  }
  std::string error_text() const {
    const std::optional<Error> error = end().error();
    return error ? error->message() : "";
  }
};

enum class Transport { kSocket, kPipes };

class GuestProcess {
 public:
  explicit GuestProcess(Transport transport = Transport::kSocket, bool hello = true) {
    ::signal(SIGPIPE, SIG_IGN);
    Fd guest_in, guest_out;
    if (transport == Transport::kSocket) {
      int ends[2];
      EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
      in_ = Fd(ends[0]);
      guest_in = Fd(ends[1]);
    } else {
      int down[2], up[2];
      EXPECT_EQ(::pipe2(down, O_CLOEXEC), 0);
      EXPECT_EQ(::pipe2(up, O_CLOEXEC), 0);
      guest_in = Fd(down[0]);
      out_ = Fd(down[1]);
      in_ = Fd(up[0]);
      guest_out = Fd(up[1]);
    }
    const Fd space = own_user_namespace();
    std::vector<std::string> arguments = {"caisson-guest"};
    if (guest_out.valid()) {
      arguments.push_back("--channel-in=" + std::to_string(guest_in.get()));
      arguments.push_back("--channel-out=" + std::to_string(guest_out.get()));
    } else {
      arguments.push_back("--channel=" + std::to_string(guest_in.get()));
    }
    if (space.valid()) arguments.push_back("--userns=" + std::to_string(space.get()));
    pid_ = ::fork();
    if (pid_ == 0) {
      for (const Fd* fd : std::initializer_list<const Fd*>{&guest_in, &guest_out, &space})
        if (fd->valid()) ::fcntl(fd->get(), F_SETFD, 0);
      become_guest(std::move(arguments));
    }
    if (hello) send(proto::encode_frame(0, FrameType::kHello, 0, hello_fields(1, 1)));
  }
  GuestProcess(const GuestProcess&) = delete;
  GuestProcess& operator=(const GuestProcess&) = delete;
  ~GuestProcess() {
    if (pid_ <= 0) return;
    hang_up();
    wait();
  }

  static std::string hello_fields(std::uint32_t version, std::uint32_t min_version) {
    return Fields().put_u32(Tag::kVersion, version).put_u32(Tag::kMinVersion, min_version).bytes();
  }

  void send(const std::string& bytes, const std::vector<int>& descriptors = {}) {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
      ssize_t count = 0;
      if (sent == 0 && !descriptors.empty()) {
        count = sys::send_part(write_fd(), bytes, descriptors);
      } else {
        count = ::write(write_fd(), bytes.data() + sent, bytes.size() - sent);
      }
      // A guest that has ended takes nothing more; what it said before still counts.
      if (count < 0 && (errno == EPIPE || errno == ECONNRESET)) return;
      ASSERT_GT(count, 0);
      sent += static_cast<std::size_t>(count);
    }
  }

  std::uint32_t open(Kind kind, const Fields& fields, const std::vector<int>& descriptors = {}) {
    return open_raw(kind, fields.bytes(), descriptors);
  }
  std::uint32_t open_raw(Kind kind, const std::string& payload,
                         const std::vector<int>& descriptors = {}) {
    next_ += 2;
    send(proto::encode_frame(next_, FrameType::kOpen, static_cast<std::uint8_t>(kind), payload),
         descriptors);
    return next_;
  }
  static Fields command(const std::vector<std::string>& arguments) {
    Fields fields;
    for (const std::string& argument : arguments) fields.put(Tag::kArg, argument);
    return fields;
  }
  std::uint32_t exec(const std::vector<std::string>& arguments) {
    return open(Kind::kExec, command(arguments));
  }
  std::uint32_t shell(const std::string& script) { return exec({"/bin/sh", "-c", script}); }

  void data(std::uint32_t stream, std::string_view bytes) {
    send(proto::encode_frame(stream, FrameType::kData, 0, bytes));
  }
  void finish(std::uint32_t stream) {
    send(proto::encode_frame(stream, FrameType::kFinish, 0, {}));
  }
  void control(std::uint32_t stream, const Fields& fields) {
    send(proto::encode_frame(stream, FrameType::kControl, 0, fields.bytes()));
  }
  void cancel(std::uint32_t stream) { send(proto::encode_frame(stream, FrameType::kClose, 0, {})); }
  void grant(std::uint32_t stream, proto::Channel channel, std::uint32_t bytes) {
    send(proto::encode_credit(stream, channel, bytes));
  }

  Seen& seen(std::uint32_t stream) { return seen_[stream]; }

  // Reads frames until `condition`; false when the deadline passed or the guest went first.
  bool until(const std::function<bool()>& condition,
             std::chrono::milliseconds deadline = kDeadline) {
    const auto end = std::chrono::steady_clock::now() + deadline;
    while (!condition())
      if (!read_frame(end)) return condition();
    return true;
  }
  // The stream's CLOSE, granting whatever credit is used on the way.
  Seen finish_stream(std::uint32_t stream) {
    EXPECT_TRUE(until([&] { return seen(stream).close.has_value(); })) << "no CLOSE came";
    if (!seen(stream).close) seen(stream).close = std::string();
    return seen(stream);
  }
  Seen run(const std::string& script) { return finish_stream(shell(script)); }

  bool wait_started(std::uint32_t stream) {
    return until([&] { return seen(stream).started || seen(stream).close; }) &&
           seen(stream).started;
  }

  void keep_credit(bool keep) { grants_ = !keep; }
  // The end of the guest; its exit status.
  int wait() {
    int status = -1;
    if (pid_ > 0) ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
  }
  void hang_up() {
    in_.reset();
    out_.reset();
  }
  bool ended() {
    return until([&] { return end_seen_; });
  }
  std::vector<Fd>& descriptors() { return descriptors_; }
  pid_t pid() const { return pid_; }

 private:
  int write_fd() const { return out_.valid() ? out_.get() : in_.get(); }

  bool read_frame(std::chrono::steady_clock::time_point end) {
    for (;;) {
      Result<std::optional<proto::Frame>> frame = decoder_.next();
      EXPECT_TRUE(frame.has_value()) << frame.error().message();
      if (!frame) return false;
      if (*frame) {
        take(**frame);
        return true;
      }
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
      pollfd entry{in_.get(), POLLIN, 0};
      if (end_seen_ || left.count() <= 0 || ::poll(&entry, 1, static_cast<int>(left.count())) <= 0)
        return false;
      char bytes[65536];
      sys::ReceivedPart part;
      if (out_.valid())
        part.count = ::read(in_.get(), bytes, sizeof(bytes));
      else
        part = sys::receive_part(in_.get(), bytes);
      if (part.count <= 0) {
        end_seen_ = true;
        return true;
      }
      for (Fd& fd : part.descriptors) descriptors_.push_back(std::move(fd));
      decoder_.feed(std::string_view(bytes, static_cast<std::size_t>(part.count)));
    }
  }

  void take(const proto::Frame& frame) {
    Seen& seen = seen_[frame.header.stream];
    EXPECT_FALSE(seen.close.has_value()) << "a frame after the CLOSE";
    switch (frame.header.type) {
      case FrameType::kData:
        (frame.header.detail == 1 ? seen.output : seen.error_output) += frame.payload;
        if (grants_ && !frame.payload.empty())
          grant(frame.header.stream, static_cast<proto::Channel>(frame.header.detail),
                static_cast<std::uint32_t>(frame.payload.size()));
        break;
      case FrameType::kCredit:
        seen.input_granted += proto::parse_credit(frame.payload).value();
        break;
      case FrameType::kEvent:
        seen.events.push_back(frame.payload);
        if (proto::FieldReader::parse(frame.payload).value().has(Tag::kStarted))
          seen.started = true;
        break;
      case FrameType::kClose:
        seen.close = frame.payload;
        break;
      default:
        break;
    }
  }

  pid_t pid_ = -1;
  Fd in_, out_;  // out_ invalid: in_ goes both ways
  proto::Decoder decoder_;
  std::vector<Fd> descriptors_;
  std::map<std::uint32_t, Seen> seen_;
  std::uint32_t next_ = static_cast<std::uint32_t>(-1);
  bool grants_ = true;
  bool end_seen_ = false;
};

// A guest and a directory of its own.
class WithDirectory : public ::testing::Test {
 protected:
  void SetUp() override {
    // In memory where that is possible: some of these trees are large.
    root_ = std::string(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") +
            "/caisson-guest-XXXXXX";
    ASSERT_NE(::mkdtemp(root_.data()), nullptr);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  GuestProcess guest_;
  std::string root_;
};

}  // namespace caisson::guest::testing
