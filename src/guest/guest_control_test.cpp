// Connections, metrics and control, through the real guest.
#include <netinet/in.h>
#include <sys/un.h>

#include <algorithm>
#include <thread>

#include "guest/guest_harness.h"

namespace caisson::guest::testing {
namespace {

using proto::ControlOperation;

// A listener that answers one connection with what `answer` makes of all that came.
class Server {
 public:
  Server(int family, const std::string& path = {}) {
    socket_ = Fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_storage address{};
    socklen_t size = sizeof(sockaddr_in);
    address.ss_family = static_cast<sa_family_t>(family);
    if (family == AF_UNIX) {
      std::strcpy(reinterpret_cast<sockaddr_un&>(address).sun_path, path.c_str());
      size = sizeof(sockaddr_un);
    } else if (family == AF_INET6) {
      reinterpret_cast<sockaddr_in6&>(address).sin6_addr = in6addr_loopback;
      size = sizeof(sockaddr_in6);
    } else {
      reinterpret_cast<sockaddr_in&>(address).sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    }
    bound_ = ::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
             ::listen(socket_.get(), 1) == 0;
    if (!bound_) return;
    size = sizeof(address);
    ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
    thread_ = std::thread([this] {
      const Fd peer(::accept(socket_.get(), nullptr, nullptr));
      std::uint64_t total = 0;
      char bytes[65536];
      for (ssize_t count; (count = ::read(peer.get(), bytes, sizeof(bytes))) > 0;)
        total += static_cast<std::uint64_t>(count);
      const std::string answer = "took " + std::to_string(total);
      [[maybe_unused]] const ssize_t sent = ::write(peer.get(), answer.data(), answer.size());
    });
  }
  ~Server() {
    ::shutdown(socket_.get(), SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
  }
  bool bound() const { return bound_; }
  std::uint16_t port() const { return port_; }

 private:
  Fd socket_;
  bool bound_ = false;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

class Dial : public WithDirectory {
 protected:
  Seen talk(const Fields& fields, std::uint64_t bytes) {
    const std::uint32_t stream = guest_.open(Kind::kDial, fields);
    const std::string chunk(50'000, 'x');
    for (std::uint64_t sent = 0; sent < bytes; sent += chunk.size()) {
      EXPECT_TRUE(guest_.until([&] {
        return sent + chunk.size() <= proto::kInitialCredit + guest_.seen(stream).input_granted;
      }));
      guest_.data(stream, chunk);
    }
    guest_.finish(stream);
    return guest_.finish_stream(stream);
  }
};

TEST_F(Dial, BothDirectionsEndByThemselves) {
  const Server server(AF_INET);
  ASSERT_TRUE(server.bound());
  const Seen seen = talk(Fields().put_u32(Tag::kPort, server.port()), 2'000'000);
  EXPECT_EQ(seen.output, "took 2000000");
  EXPECT_EQ(seen.error_text(), "");
  EXPECT_EQ(seen.event(0).text(Tag::kAddress).value(), "127.0.0.1");
}

TEST_F(Dial, TriesTheOtherLoopbackToo) {
  const Server server(AF_INET6);
  if (!server.bound()) GTEST_SKIP() << "this host has no IPv6 loopback";
  const Seen seen = talk(Fields().put_u32(Tag::kPort, server.port()), 0);
  EXPECT_EQ(seen.output, "took 0");
  EXPECT_EQ(seen.event(0).text(Tag::kAddress).value(), "::1");
}

TEST_F(Dial, UnixSocket) {
  const Server server(AF_UNIX, root_ + "/s");
  ASSERT_TRUE(server.bound());
  EXPECT_EQ(talk(Fields().put(Tag::kPath, root_ + "/s"), 100'000).output, "took 100000");
}

TEST_F(Dial, RefusalsAreTold) {
  const auto error = [&](const Fields& fields) {
    return guest_.finish_stream(guest_.open(Kind::kDial, fields));
  };
  const Seen refused = error(Fields().put_u32(Tag::kPort, 1).put(Tag::kAddress, "127.0.0.1"));
  EXPECT_EQ(refused.error_text(), "connect to port 1 of 127.0.0.1: Connection refused");
  EXPECT_EQ(refused.end().number(Tag::kErrorErrno).value(),
            static_cast<std::uint64_t>(ECONNREFUSED));
  EXPECT_EQ(error(Fields().put(Tag::kPath, root_ + "/none")).end().number(Tag::kErrorErrno).value(),
            static_cast<std::uint64_t>(ENOENT));
  EXPECT_EQ(error(Fields()).error_text(), "dial: either a port or a path is needed");
  EXPECT_EQ(error(Fields().put_u32(Tag::kPort, 70000)).error_text(),
            "dial: port 70000, allowed are 1 to 65535");
  EXPECT_EQ(error(Fields().put_u32(Tag::kPort, 1).put(Tag::kAddress, "192.0.2.1")).error_text(),
            "dial: allowed addresses are 127.0.0.1 and ::1");
  EXPECT_EQ(error(Fields().put(Tag::kPath, std::string(200, '/'))).error_text(),
            "dial: the path of a unix socket is absolute, shorter than 108 bytes and has no zero "
            "byte");
}

TEST_F(Dial, CanBeCancelled) {
  const Server server(AF_INET);
  const std::uint32_t stream =
      guest_.open(Kind::kDial, Fields().put_u32(Tag::kPort, server.port()));
  ASSERT_TRUE(guest_.until([&] { return !guest_.seen(stream).events.empty(); }));
  guest_.cancel(stream);
  EXPECT_EQ(guest_.finish_stream(stream).error_text(), "cancelled by the peer");
}

class Control : public WithDirectory {
 protected:
  std::uint32_t ask(ControlOperation operation, Fields fields = {}) {
    return guest_.open(Kind::kControl,
                       fields.put_u8(Tag::kControlOperation, static_cast<std::uint8_t>(operation)));
  }
};

TEST_F(Control, Metrics) {
  const Seen seen = guest_.finish_stream(guest_.open(Kind::kMetrics, Fields()));
  const proto::FieldReader fields = seen.event(0);
  const std::vector<std::string_view> names = fields.all(Tag::kMetricName);
  EXPECT_EQ(names.size(), fields.all(Tag::kMetricValue).size());
  for (const std::string_view name : {"cpu_count", "memory_total", "processes", "cpu_used_us",
                                      "disk_total", "disk_used", "inodes_total", "uptime_ms"})
    EXPECT_NE(std::ranges::find(names, name), names.end()) << name;
}

TEST_F(Control, ProcessorTimeOfWhatHasEndedStaysCounted) {
  const auto used = [&] {
    const Seen seen = guest_.finish_stream(guest_.open(Kind::kMetrics, Fields()));
    const proto::FieldReader fields = seen.event(0);
    const auto names = fields.all(Tag::kMetricName);
    const auto at = std::ranges::find(names, "cpu_used_us") - names.begin();
    std::uint64_t value = 0;
    std::memcpy(&value, fields.all(Tag::kMetricValue).at(static_cast<std::size_t>(at)).data(),
                sizeof(value));
    return value;
  };
  // The guest is not PID 1 here and sees the whole host, where others end unseen meanwhile.
  bool counted = false;
  for (int i = 0; i < 20 && !counted; ++i) {
    const std::uint64_t before = used();
    const Seen burnt = guest_.run("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done");
    const std::uint64_t spent = burnt.end().number(Tag::kUserMicros).value();
    const std::uint64_t after = used();
    // Counted in ticks of 10 ms.
    counted = after > before && after - before + 20'000 >= spent && spent > 20'000;
  }
  EXPECT_TRUE(counted);
}

TEST_F(Control, Ping) {
  EXPECT_EQ(guest_.finish_stream(ask(ControlOperation::kPing)).error_text(), "");
}

TEST_F(Control, ListsProcesses) {
  const std::uint32_t sleeper = guest_.exec({"sleep", "98765"});
  ASSERT_TRUE(guest_.wait_started(sleeper));
  const std::uint64_t pid = guest_.seen(sleeper).event(0).number(Tag::kStarted).value();
  const Seen seen = guest_.finish_stream(ask(ControlOperation::kListProcesses));
  bool found = false;
  for (std::size_t i = 0; i < seen.events.size(); ++i) {
    const proto::FieldReader fields = seen.event(i);
    if (fields.number(Tag::kPid).value() != pid) continue;
    found = true;
    EXPECT_EQ(fields.number(Tag::kParentPid).value(), static_cast<std::uint64_t>(guest_.pid()));
    EXPECT_EQ(fields.text(Tag::kName).value(), "sleep");
    EXPECT_EQ(fields.text(Tag::kCommandLine).value(), std::string_view("sleep\0"
                                                                       "98765\0",
                                                                       12));
  }
  EXPECT_TRUE(found);
}

TEST_F(Control, WhatNeedsAnOwnKernelIsUnimplemented) {
  for (const ControlOperation operation :
       {ControlOperation::kSetTime, ControlOperation::kCloseConnections, ControlOperation::kReseed,
        static_cast<ControlOperation>(77)})
    EXPECT_EQ(guest_.finish_stream(ask(operation)).end().number(Tag::kErrorCode).value(),
              static_cast<std::uint64_t>(Code::kUnimplemented));
}

TEST_F(Control, ShutdownLetsCommandsEnd) {
  const std::uint32_t stream = guest_.shell(
      "trap 'echo bye; exit 7' TERM; echo ready; "
      "while :; do sleep 0.02; done");
  ASSERT_TRUE(guest_.until([&] { return guest_.seen(stream).output == "ready\n"; }));
  const std::uint32_t control =
      ask(ControlOperation::kShutdown, Fields().put_u32(Tag::kTimeLimitMs, 10'000));
  EXPECT_EQ(guest_.finish_stream(control).error_text(), "");
  EXPECT_EQ(guest_.seen(stream).output, "ready\nbye\n");
  EXPECT_EQ(guest_.seen(stream).exit_code(), 7u);
  EXPECT_EQ(guest_.wait(), 0);
}

TEST_F(Control, ShutdownWithoutGraceEndsAtOnce) {
  const std::uint32_t stream = guest_.shell("trap '' TERM; echo $$; while :; do sleep 1; done");
  ASSERT_TRUE(guest_.until([&] { return guest_.seen(stream).output.ends_with('\n'); }));
  EXPECT_EQ(guest_.finish_stream(ask(ControlOperation::kShutdown)).error_text(), "");
  EXPECT_EQ(guest_.wait(), 0);
  const pid_t pid = std::stoi(guest_.seen(stream).output);
  EXPECT_TRUE(ends(pid));
}

TEST_F(Control, EndsEveryProcessAndGoesOn) {
  const std::uint32_t first = guest_.shell("trap '' TERM; echo $$; while :; do sleep 1; done");
  const std::uint32_t second = guest_.exec({"sleep", "98766"});
  ASSERT_TRUE(guest_.wait_started(second));
  ASSERT_TRUE(guest_.until([&] { return guest_.seen(first).output.ends_with('\n'); }));
  const pid_t pid = std::stoi(guest_.seen(first).output);
  EXPECT_EQ(guest_.finish_stream(ask(ControlOperation::kEndProcesses)).error_text(), "");
  EXPECT_TRUE(ends(pid));
  for (const std::uint32_t stream : {first, second}) {
    const Seen ended = guest_.finish_stream(stream);
    EXPECT_EQ(ended.exit_signal(), static_cast<std::uint64_t>(SIGKILL));
  }
  EXPECT_EQ(guest_.run("echo again").output, "again\n");
}

TEST_F(Control, EndsNothingWhereNothingRuns) {
  EXPECT_EQ(guest_.finish_stream(ask(ControlOperation::kEndProcesses)).error_text(), "");
}

TEST_F(Control, ShutdownHasALimitAndBeginsOnce) {
  EXPECT_EQ(guest_
                .finish_stream(
                    ask(ControlOperation::kShutdown, Fields().put_u32(Tag::kTimeLimitMs, 60'001)))
                .error_text(),
            "shutdown: 60001 ms of grace, at most 60000 are allowed");
  const std::uint32_t stubborn =
      guest_.shell("trap '' TERM; echo ready; while :; do sleep 1; done");
  ASSERT_TRUE(guest_.until([&] { return guest_.seen(stubborn).output == "ready\n"; }));
  ask(ControlOperation::kShutdown, Fields().put_u32(Tag::kTimeLimitMs, 5'000));
  EXPECT_EQ(guest_.finish_stream(ask(ControlOperation::kShutdown)).error_text(),
            "shutdown: it has begun already");
}

}  // namespace
}  // namespace caisson::guest::testing
