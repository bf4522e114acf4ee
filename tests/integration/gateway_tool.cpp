// A sandbox behind a gateway, and the gateway that the tests of its datapath need: one that writes
// down what comes and answers it, and lets nothing out.
//
//   gateway_tool [--image NAME] [--user USER] [--sudo] -- PROGRAM [ARGUMENT...]
//   gateway_tool --time COUNT [--plain]
//
// The first runs a command and passes its output on. On stderr comes one line of JSON for each
// thing that arrives. A connection is told its original destination ("tcp 192.0.2.7 443", "dns-tcp
// …") and then held open. One to port 1 has all sockets closed, one to port 2 the network's
// descriptor as well, one to port 3 the listeners made anew. A question to port 53 is sent back
// behind "echo ". With --beside another sandbox is asked for the same while this one lives. The
// second makes COUNT sandboxes one after another and tells the microseconds that each took to be
// up; with --plain they have no gateway.
#include <arpa/inet.h>
#include <caisson/sandbox.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/kernel_abi.h"
#include "base/sys.h"
#include "wall/handouts.h"

namespace caisson {
namespace {

using Gateway = CreateOptions::Gateway;

// Of linux/netfilter_ipv4.h and linux/netfilter_ipv6/ip6_tables.h.
constexpr int kOriginalDestination = 80;
constexpr std::uint16_t kClosePort = 1, kDropPort = 2, kAgainPort = 3, kTcpPort = 15001;

struct Arguments {
  policy::SpecValues spec;
  std::vector<std::string> command;
  int time = 0;
  bool plain = false, sudo = false;
};

Arguments parse(int count, char** words) {
  Arguments arguments;
  arguments.spec.image = "host";
  arguments.spec.limits.timeout_ms = 120'000;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const auto value = [&] { return std::string(++i < count ? words[i] : ""); };
    if (word == "--image") arguments.spec.image = value();
    if (word == "--user") arguments.spec.user = value();
    if (word == "--sudo") arguments.spec.privileges = policy::Privileges::kSudo;
    if (word == "--time") arguments.time = std::stoi(value());
    if (word == "--plain") arguments.plain = true;
    if (word != "--") continue;
    arguments.command.assign(words + i + 1, words + count);
    break;
  }
  return arguments;
}

// "192.0.2.7 443" of either family.
std::string text_of(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN] = "?";
  std::uint16_t port = 0;
  if (address.ss_family == AF_INET) {
    const auto& ipv4 = reinterpret_cast<const sockaddr_in&>(address);
    ::inet_ntop(AF_INET, &ipv4.sin_addr, text, sizeof text);
    port = ntohs(ipv4.sin_port);
  } else if (address.ss_family == AF_INET6) {
    const auto& ipv6 = reinterpret_cast<const sockaddr_in6&>(address);
    ::inet_ntop(AF_INET6, &ipv6.sin6_addr, text, sizeof text);
    port = ntohs(ipv6.sin6_port);
  }
  return std::string(text) + " " + std::to_string(port);
}

// Where a connection wanted to go.
sockaddr_storage destination_of(const Fd& connection) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockopt(connection.get(), SOL_IP, kOriginalDestination, &address, &size) == 0)
    return address;
  size = sizeof address;
  (void)::getsockopt(connection.get(), SOL_IPV6, kOriginalDestination, &address, &size);
  return address;
}

// A listener for TCP in the network namespace of a gateway, as whoever starts a gateway again needs
// one. An ordinary user has rights over the namespace's owner alone, and enters that first.
Result<Fd> listener_again(const Fd& network) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return fail_errno("socketpair");
  const Fd here(ends[0]);
  Fd there(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const Fd owner(::ioctl(network.get(), NS_GET_USERNS));
    const Fd made(::setns(owner.get(), CLONE_NEWUSER) == 0 &&
                          ::setns(network.get(), CLONE_NEWNET) == 0
                      ? ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)
                      : -1);
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(kTcpPort);
    const int on = 1;
    const int numbers[] = {made.get()};
    if (::setsockopt(made.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        ::bind(made.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
        ::listen(made.get(), SOMAXCONN) == 0)
      (void)sys::send_message(there.get(), "listener", numbers);
    ::_exit(0);
  }
  there.reset();
  auto said = sys::recv_message(here.get(), 64);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!said || said->descriptors.size() != 1)
    return fail(Error::internal("no listener could be made again"));
  return std::move(said->descriptors[0]);
}

void tell(const char* what, const std::string& text) {
  std::fprintf(stderr, "{\"%s\":\"%s\"}\n", what, text.c_str());
}

class Recorder {
 public:
  Recorder(wall::Gateway gateway, Fd stop) : gateway_(std::move(gateway)), stop_(std::move(stop)) {}

  void run() {
    for (;;) {
      pollfd entries[] = {{stop_.get(), POLLIN, 0},
                          {gateway_.tcp.get(), POLLIN, 0},
                          {gateway_.dns_tcp.get(), POLLIN, 0},
                          {gateway_.dns_udp.get(), POLLIN, 0}};
      if (::poll(entries, 4, -1) < 0) continue;
      if (entries[0].revents != 0) return;
      if (entries[1].revents != 0) take(gateway_.tcp, "tcp");
      if (entries[2].revents != 0) take(gateway_.dns_tcp, "dns-tcp");
      if (entries[3].revents != 0) answer();
    }
  }

 private:
  void take(const Fd& listener, const char* what) {
    Fd connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection.valid()) return;
    const sockaddr_storage address = destination_of(connection);
    const std::string place = text_of(address);
    tell(what, place);
    const std::string line = std::string(what) + " " + place + "\n";
    (void)::send(connection.get(), line.data(), line.size(), MSG_NOSIGNAL);
    held_.push_back(std::move(connection));
    const std::uint16_t port = address.ss_family == AF_INET6
                                   ? ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port)
                                   : ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
    if (port < kClosePort || port > kAgainPort) return;
    Fd network = std::move(gateway_.namespace_fd);
    gateway_ = {};
    held_.clear();
    if (port == kDropPort) return;
    if (port == kAgainPort) {
      auto again = listener_again(network);
      if (again)
        gateway_.tcp = std::move(*again);
      else
        tell("fault", again.error().message());
    }
    gateway_.namespace_fd = std::move(network);
  }

  void answer() {
    char question[1500];
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    const ssize_t count = ::recvfrom(gateway_.dns_udp.get(), question, sizeof question, 0,
                                     reinterpret_cast<sockaddr*>(&from), &size);
    if (count < 0) return;
    tell("dns-udp", text_of(from));
    const std::string text = "echo " + std::string(question, static_cast<std::size_t>(count));
    (void)::sendto(gateway_.dns_udp.get(), text.data(), text.size(), 0,
                   reinterpret_cast<const sockaddr*>(&from), size);
  }

  wall::Gateway gateway_;
  Fd stop_;
  std::vector<Fd> held_;
};

Status run_command(const Arguments& arguments) {
  TRY_ASSIGN(const SandboxSpec spec, SandboxSpec::validate(arguments.spec));
  TRY_ASSIGN(Sandbox sandbox, Sandbox::create(spec, {.gateway = Gateway::kYes}));
  TRY_ASSIGN(wall::Gateway gateway, sandbox.take_gateway());
  if (sandbox.take_gateway().has_value())
    return fail(Error::internal("the same gateway was taken twice"));
  int stop[2];
  if (::pipe2(stop, O_CLOEXEC) != 0) return fail_errno("pipe2");
  Fd end(stop[1]);
  std::thread recorder([gateway = std::move(gateway), stop_fd = Fd(stop[0])]() mutable {
    Recorder(std::move(gateway), std::move(stop_fd)).run();
  });
  Command command;
  command.arguments = arguments.command;
  auto result = sandbox.run(command);
  end.reset();
  recorder.join();
  if (!result) return fail(std::move(result).error());
  std::fwrite(result->standard_output.data(), 1, result->standard_output.size(), stdout);
  std::fwrite(result->standard_error.data(), 1, result->standard_error.size(), stdout);
  if (result->outcome.verdict != Verdict::kExited || result->outcome.exit_code != 0)
    return fail(
        Error::internal("the command ended with " + std::to_string(result->outcome.exit_code)));
  return sandbox.close();
}

Status measure(const Arguments& arguments) {
  TRY_ASSIGN(const SandboxSpec spec, SandboxSpec::validate(arguments.spec));
  for (int i = 0; i < arguments.time; ++i) {
    const std::uint64_t began = sys::monotonic_us();
    TRY_ASSIGN(Sandbox sandbox,
               Sandbox::create(spec, {.gateway = arguments.plain ? Gateway::kNo : Gateway::kYes}));
    std::printf("%llu\n", static_cast<unsigned long long>(sys::monotonic_us() - began));
    if (!arguments.plain) {
      TRY_ASSIGN(const wall::Gateway gateway, sandbox.take_gateway());
    }
    TRY(sandbox.close());
  }
  return {};
}

}  // namespace
}  // namespace caisson

int main(int count, char** words) {
  const caisson::Arguments arguments = caisson::parse(count, words);
  const auto done =
      arguments.time > 0 ? caisson::measure(arguments) : caisson::run_command(arguments);
  std::fflush(stdout);
  if (done.has_value()) return 0;
  std::fprintf(stderr, "gateway_tool: %s\n", done.error().message().c_str());
  return done.error().code() == caisson::Code::kFailedPrecondition ? 2 : 1;
}
