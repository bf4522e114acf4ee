#include "egress/proxy.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/sys.h"
#include "egress/confine.h"
#include "egress/connection.h"
#include "image/fetch/confine.h"
#include "image/ids.h"
#include "wall/namespace/ids.h"

namespace caisson::egress {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int kPatienceMs = 60'000;

struct Listening {
  Fd socket;
  std::uint16_t port = 0;
  std::string text() const { return "127.0.0.1:" + std::to_string(port); }
};

Listening listen_here() {
  Listening made;
  made.socket = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(made.socket.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(made.socket.get(), 128), 0);
  EXPECT_EQ(::getsockname(made.socket.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  made.port = ntohs(address.sin_port);
  return made;
}

Fd connect_to(std::uint16_t port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return socket;
}

Fd accept_from(const Listening& server) {
  pollfd entry{server.socket.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, kPatienceMs), 1);
  return Fd(::accept4(server.socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
}

void send_text(const Fd& socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL);
    ASSERT_GT(sent, 0);
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

// Until the end of the connection, or until so many bytes have come.
std::string receive(const Fd& socket, std::size_t most = ~std::size_t{0}) {
  std::string text;
  char room[65536];
  while (text.size() < most) {
    pollfd entry{socket.get(), POLLIN, 0};
    if (::poll(&entry, 1, kPatienceMs) != 1) return text + "(silence)";
    const ssize_t got = ::recv(socket.get(), room, std::min(sizeof room, most - text.size()), 0);
    if (got <= 0) return text;
    text.append(room, static_cast<std::size_t>(got));
  }
  return text;
}

class Proxy : public ::testing::Test {
 protected:
  void start(std::vector<std::string> allowed, ProxyLimits limits = {}) {
    Listening listening = listen_here();
    port_ = listening.port;
    auto started =
        EgressProxy::start(std::move(listening.socket), AllowList::parse(allowed).value(), limits);
    ASSERT_TRUE(started.has_value()) << started.error().message();
    proxy_.emplace(std::move(*started));
  }
  std::string ask(const std::string& request) {
    const Fd client = connect_to(port_);
    send_text(client, request);
    return receive(client);
  }

  std::uint16_t port_ = 0;
  std::optional<EgressProxy> proxy_;
};

TEST_F(Proxy, PassesATunnelBothWays) {
  const Listening server = listen_here();
  start({server.text()});
  const Fd client = connect_to(port_);
  // The first bytes of the tunnel may come with the head.
  send_text(client,
            "CONNECT " + server.text() + " HTTP/1.1\r\nHost: " + server.text() + "\r\n\r\nfirst");
  const Fd there = accept_from(server);
  EXPECT_EQ(receive(client, 39), "HTTP/1.1 200 Connection established\r\n\r\n");
  EXPECT_EQ(receive(there, 5), "first");
  send_text(there, "answer");
  EXPECT_EQ(receive(client, 6), "answer");
  // One side's end reaches the other, which may go on.
  ::shutdown(client.get(), SHUT_WR);
  EXPECT_EQ(receive(there), "");
  send_text(there, "late");
  ::shutdown(there.get(), SHUT_WR);
  EXPECT_EQ(receive(client), "late");
  const Report report = proxy_->stop();
  EXPECT_EQ(report.connections, 1u);
  EXPECT_EQ(report.bytes_out, 5u);
  EXPECT_EQ(report.bytes_in, 39u + 6 + 4);
  EXPECT_EQ(report.refused, 0u);
}

TEST_F(Proxy, PassesMuchInBothDirectionsAtOnce) {
  const Listening server = listen_here();
  start({server.text()});
  const Fd client = connect_to(port_);
  send_text(client, "CONNECT " + server.text() + " HTTP/1.1\r\n\r\n");
  const Fd there = accept_from(server);
  receive(client, 39);
  const std::string up(3'000'000, 'u'), down(5'000'000, 'd');
  std::thread sender([&] {
    send_text(client, up);
    ::shutdown(client.get(), SHUT_WR);
  });
  std::thread answerer([&] {
    send_text(there, down);
    ::shutdown(there.get(), SHUT_WR);
  });
  std::string got_up;
  std::thread reader([&] { got_up = receive(there); });
  EXPECT_EQ(receive(client), down);
  sender.join();
  answerer.join();
  reader.join();
  EXPECT_EQ(got_up, up);
}

TEST_F(Proxy, PassesOneRequestAndNoMore) {
  const Listening server = listen_here();
  start({server.text()});
  const Fd client = connect_to(port_);
  send_text(client, "POST http://" + server.text() + "/p HTTP/1.1\r\nHost: " + server.text() +
                        "\r\nContent-Length: 4\r\nConnection: keep-alive\r\n\r\nbodyGET http://"
                        "127.0.0.1:1/ HTTP/1.1\r\n\r\n");
  const Fd there = accept_from(server);
  const std::string wanted = "POST /p HTTP/1.1\r\nHost: " + server.text() +
                             "\r\nContent-Length: 4\r\nConnection: close\r\n\r\nbody";
  EXPECT_EQ(receive(there, wanted.size()), wanted);
  send_text(there, "HTTP/1.1 200 OK\r\n\r\nhello");
  ::shutdown(there.get(), SHUT_WR);
  EXPECT_EQ(receive(client), "HTTP/1.1 200 OK\r\n\r\nhello");
  EXPECT_EQ(receive(there), "");
}

TEST_F(Proxy, ABodyThatBreaksOffEndsTheRequest) {
  const Listening server = listen_here();
  start({server.text()});
  const std::string head = "POST http://" + server.text() + "/ HTTP/1.1\r\nHost: " + server.text() +
                           "\r\nTransfer-Encoding: chunked\r\n\r\n";
  {
    const Fd client = connect_to(port_);
    send_text(client, head + "5\r\nhel");
    const Fd there = accept_from(server);
    const std::string wanted =
        "POST / HTTP/1.1\r\nHost: " + server.text() +
        "\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhel";
    EXPECT_EQ(receive(there, wanted.size()), wanted);
    ::shutdown(client.get(), SHUT_WR);
    EXPECT_EQ(receive(there), "");
  }
  const Fd client = connect_to(port_);
  send_text(client, head + "5\r\nhelloX");
  const Fd there = accept_from(server);
  receive(there);
  EXPECT_EQ(receive(client), "");
}

TEST_F(Proxy, RefusesWhatIsNotAllowedAndSaysSo) {
  const Listening server = listen_here();
  start({"example.com"});
  EXPECT_THAT(ask("CONNECT " + server.text() + " HTTP/1.1\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 403 "), HasSubstr(server.text() + " is not among")));
  EXPECT_THAT(ask("GET http://example.com:81/ HTTP/1.1\r\nHost: example.com:81\r\n\r\n"),
              StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(ask("CONNECT " + server.text() + " HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(ask("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  pollfd entry{server.socket.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 0), 0);
  const Report report = proxy_->stop();
  EXPECT_EQ(report.connections, 0u);
  EXPECT_EQ(report.refused, 4u);
  ASSERT_EQ(report.refusals.size(), 3u);
  EXPECT_EQ(report.refusals[0].target, server.text());
  EXPECT_EQ(report.refusals[0].count, 2u);
  EXPECT_EQ(report.refusals[1].target, "example.com:81");
}

TEST_F(Proxy, LocalhostIsThisHostWhereItIsNamed) {
  const Listening server = listen_here();
  start({"localhost:" + std::to_string(server.port)});
  const Fd client = connect_to(port_);
  send_text(client, "CONNECT LocalHost:" + std::to_string(server.port) + " HTTP/1.1\r\n\r\n");
  const Fd there = accept_from(server);
  EXPECT_THAT(receive(client, 12), "HTTP/1.1 200");
}

TEST_F(Proxy, SaysWhenNobodyAnswers) {
  std::string gone;
  {
    gone = listen_here().text();
  }
  start({gone});
  EXPECT_THAT(ask("CONNECT " + gone + " HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 502 "));
}

TEST_F(Proxy, ClosesWhatIsIdle) {
  const Listening server = listen_here();
  start({server.text()}, {.idle = std::chrono::milliseconds(300)});
  const Fd silent = connect_to(port_);
  const Fd client = connect_to(port_);
  send_text(client, "CONNECT " + server.text() + " HTTP/1.1\r\n\r\n");
  const Fd there = accept_from(server);
  EXPECT_EQ(receive(there), "");
  EXPECT_THAT(receive(client), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(receive(silent), "");
}

TEST_F(Proxy, TakesNoMoreThanSoManyAtOnce) {
  const Listening server = listen_here();
  start({server.text()}, {.connections = 2});
  const std::string request = "CONNECT " + server.text() + " HTTP/1.1\r\n\r\n";
  std::vector<Fd> clients, there;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(connect_to(port_));
    send_text(clients.back(), request);
  }
  there.push_back(accept_from(server));
  there.push_back(accept_from(server));
  receive(clients[0], 39);
  receive(clients[1], 39);
  // The third waits until one of the two is over.
  pollfd entry{server.socket.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&entry, 1, 200), 0);
  clients[0].reset();
  there[0].reset();
  there.push_back(accept_from(server));
  EXPECT_THAT(receive(clients[2], 12), "HTTP/1.1 200");
}

TEST_F(Proxy, StaysUpWhereConnectionsBreak) {
  const Listening server = listen_here();
  start({server.text()});
  const linger hard{1, 0};
  for (int i = 0; i < 20; ++i) {
    const Fd client = connect_to(port_);
    send_text(client, "CONNECT " + server.text() + " HTTP/1.1\r\n\r\nx");
    const Fd there = accept_from(server);
    // A reset instead of an end.
    ASSERT_EQ(::setsockopt((i % 2 == 0 ? client : there).get(), SOL_SOCKET, SO_LINGER, &hard,
                           sizeof hard),
              0);
  }
  const Fd client = connect_to(port_);
  send_text(client, "CONNECT " + server.text() + " HTTP/1.1\r\n\r\n");
  const Fd there = accept_from(server);
  EXPECT_THAT(receive(client, 12), "HTTP/1.1 200");
  EXPECT_EQ(proxy_->stop().connections, 21u);
}

// A file of /proc/PID of our only child.
std::string file_of_child(const std::string& name) {
  const auto children =
      sys::read_file(AT_FDCWD, "/proc/self/task/" + std::to_string(::getpid()) + "/children", 4096);
  const std::string pid = children->substr(0, children->find(' '));
  return sys::read_file(AT_FDCWD, "/proc/" + pid + "/" + name, 65536).value();
}

TEST(RelayBuffer, DropsWhatWasSentThoughItIsNeverEmpty) {
  RelayBuffer buffer;
  const std::string chunk(RelayBuffer::kMost / 2, 'x');
  buffer.add("y");
  for (int i = 0; i < 1000; ++i) {
    ASSERT_GE(buffer.room(), chunk.size() - 1);
    buffer.add(chunk);
    buffer.sent += chunk.size();
    ASSERT_FALSE(buffer.empty());
    ASSERT_LE(buffer.bytes.size(), RelayBuffer::kMost);
  }
  EXPECT_LE(buffer.bytes.capacity(), 2 * RelayBuffer::kMost);
  buffer.sent = 0;
  buffer.add(std::string(2 * RelayBuffer::kMost, 'z'));
  EXPECT_EQ(buffer.room(), 0u);
}

TEST_F(Proxy, HasNoRightsOfItsOwn) {
  start({});
  const std::string status = file_of_child("status");
#if !defined(__has_feature) || !__has_feature(address_sanitizer)
  EXPECT_THAT(file_of_child("limits"), Not(HasSubstr("Max data size             unlimited")));
#endif
  EXPECT_THAT(status, HasSubstr("NoNewPrivs:\t1\n"));
  EXPECT_THAT(status, HasSubstr("Seccomp:\t2\n"));
  EXPECT_THAT(status, HasSubstr("CapPrm:\t0000000000000000\n"));
  EXPECT_THAT(status, HasSubstr("CapEff:\t0000000000000000\n"));
  if (::geteuid() == 0) {
    const std::string own = std::to_string(kEgressId);
    EXPECT_THAT(status, HasSubstr("Gid:\t" + own + "\t" + own + "\t" + own + "\t" + own + "\n"));
    EXPECT_THAT(status, HasSubstr("Uid:\t" + own + "\t" + own + "\t" + own + "\t" + own + "\n"));
    EXPECT_THAT(status, HasSubstr("Groups:\t \n"));
  }
}

TEST(EgressId, IsNobodyElses) {
  EXPECT_GE(kEgressId, wall::kSupervisorBase + wall::kSlotCount);
  EXPECT_LT(kEgressId, image::kImageIdBase);
  EXPECT_NE(kEgressId, image::kFetchId);
}

constexpr std::size_t kMostMemory = 128 * 1024 * 1024;

// Runs `call` in a process of its own that is confined; what it returns.
int confined(int (*call)(int parent)) {
  const int parent = ::getpid();
  const pid_t child = ::fork();
  EXPECT_GE(child, 0);
  if (child == 0) {
    const int first = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    const int second = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    const Confinement how{.name = "test",
                          .parent = parent,
                          .keep = {first, second},
                          .descriptors = 256,
                          .memory = kMostMemory};
    if (!confine(how)) ::_exit(120);
    // Not _exit(2), before which a sanitizer makes calls of its own that are refused here.
    ::syscall(SYS_exit_group, call(parent));
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Confined, SignalsNobodyButItself) {
  // Signal 0 does nothing; its permission is looked at as any other's.
  EXPECT_EQ(confined([](int parent) {
              return ::syscall(SYS_tgkill, parent, parent, 0) == 0 ? 0 : errno;
            }),
            EPERM);
  EXPECT_EQ(confined([](int) {
              return ::syscall(SYS_tgkill, ::getpid(), ::getpid(), 0) == 0 ? 0 : errno;
            }),
            0);
#if !defined(__has_feature) || !__has_feature(address_sanitizer)  // which takes that signal
  EXPECT_EQ(confined([](int) -> int { ::abort(); }), -SIGABRT);
#endif
}

TEST(Confined, OpensForReadingAndOwnsNoSignals) {
  EXPECT_EQ(confined([](int) { return ::open("/dev/null", O_WRONLY) < 0 ? errno : 0; }), EPERM);
  EXPECT_EQ(
      confined([](int parent) { return ::fcntl(STDERR_FILENO, F_SETOWN, parent) < 0 ? errno : 0; }),
      EPERM);
  EXPECT_EQ(confined([](int) { return ::socket(AF_UNIX, SOCK_STREAM, 0) < 0 ? errno : 0; }), EPERM);
}

#if !defined(__has_feature) || !__has_feature(address_sanitizer)
TEST(Confined, HasOnlySoMuchMemory) {
  static const auto maps = [](std::size_t bytes) {
    return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) !=
           MAP_FAILED;
  };
  EXPECT_EQ(confined([](int) { return maps(kMostMemory / 2) ? 0 : errno; }), 0);
  EXPECT_EQ(confined([](int) { return maps(2 * kMostMemory) ? 0 : errno; }), ENOMEM);
}
#endif

TEST_F(Proxy, EndsWithItsOwner) {
  start({});
  const std::uint16_t port = port_;
  proxy_.reset();
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), -1);
}

TEST_F(Proxy, EndsWithTheProcessThatStartedIt) {
  Listening listening = listen_here();
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  Fd report(ends[0]);
  Fd told(ends[1]);
  const pid_t owner = ::fork();
  ASSERT_GE(owner, 0);
  if (owner == 0) {
    report.reset();
    auto started = EgressProxy::start(std::move(listening.socket), {}, {});
    const char word = started.has_value() ? 'y' : 'n';
    if (::write(told.get(), &word, 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  told.reset();
  char word = 0;
  ASSERT_EQ(::read(report.get(), &word, 1), 1);
  EXPECT_EQ(word, 'y');
  const std::uint16_t port = listening.port;
  listening.socket.reset();
  {
    const Fd client = connect_to(port);
  }
  ::kill(owner, SIGKILL);
  ASSERT_EQ(::waitpid(owner, nullptr, 0), owner);
  // The listener goes with its last holder.
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  for (int waited_ms = 0; waited_ms < kPatienceMs; waited_ms += 20) {
    const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return;
    ::usleep(20'000);
  }
  FAIL() << "the proxy outlived its owner";
}

TEST(Environment, NamesTheProxyAndLeavesOutServersInside) {
  EXPECT_THAT(EgressProxy::environment(),
              ElementsAre("http_proxy=http://127.0.0.1:3128", "https_proxy=http://127.0.0.1:3128",
                          "HTTP_PROXY=http://127.0.0.1:3128", "HTTPS_PROXY=http://127.0.0.1:3128",
                          "no_proxy=localhost,127.0.0.1,::1"));
  const std::string entries[] = {"localhost:8080"};
  EXPECT_EQ(EgressProxy::environment(AllowList::parse(entries).value()).size(), 4u);
}

}  // namespace
}  // namespace caisson::egress
