// What names of the host lead to: in a network namespace and with resolver files of its own, so
// that this host can have addresses of the Internet and be its own name server.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <net/route.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "egress/own_address.h"
#include "egress/proxy.h"

namespace caisson::egress {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int kPatienceMs = 60'000;

void write_text(const std::string& path, const std::string& text) {
  std::ofstream(path) << text;
}

sockaddr_in four(const char* address, std::uint16_t port = 0) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_port = htons(port);
  ::inet_pton(AF_INET, address, &made.sin_addr);
  return made;
}

sockaddr* raw(sockaddr_in& address) {
  return reinterpret_cast<sockaddr*>(&address);
}

bool own(const char* text) {
  return is_own_address(policy::IpAddress::parse(text).value());
}

// An interface of this namespace with such an address: "lo:1" is another one of "lo".
bool give_address(const char* interface, const char* address) {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, interface, IFNAMSIZ - 1);
  sockaddr_in wanted = four(address);
  std::memcpy(&request.ifr_addr, &wanted, sizeof wanted);
  return ::ioctl(socket.get(), SIOCSIFADDR, &request) == 0;
}

bool bring_up_loopback() {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strncpy(request.ifr_name, "lo", IFNAMSIZ - 1);
  request.ifr_flags = IFF_UP | IFF_RUNNING;
  return ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0;
}

// The rest of the Internet, as if it were reached by the loopback.
bool route_elsewhere() {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  rtentry route{};
  sockaddr_in to = four("9.9.9.0"), mask = four("255.255.255.0");
  std::memcpy(&route.rt_dst, &to, sizeof to);
  std::memcpy(&route.rt_genmask, &mask, sizeof mask);
  char device[] = "lo";
  route.rt_dev = device;
  route.rt_flags = RTF_UP;
  return ::ioctl(socket.get(), SIOCADDRT, &route) == 0;
}

class HostNames : public ::testing::Test {
 protected:
  HostNames() {
    char name[] = "/tmp/caisson-names-XXXXXX";
    folder_ = ::mkdtemp(name);
    write_text(folder_ + "/hosts", "8.8.4.4 own.example.com\n");
    write_text(folder_ + "/resolv.conf",
               "nameserver 127.0.0.1\nsearch elsewhere.example\noptions ndots:5\n");
  }
  ~HostNames() override { std::filesystem::remove_all(folder_); }

  // Runs it where the host has 8.8.8.8 and 8.8.4.4; what it returns.
  std::string run(const std::function<std::string()>& what) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    Fd here(ends[0]), there(ends[1]);
    const pid_t child = ::fork();
    EXPECT_GE(child, 0);
    if (child == 0) {
      const std::string said =
          enter() ? what() : "(no namespace: " + std::string(::strerror(errno));
      const ssize_t told = ::write(there.get(), said.data(), said.size());
      ::_exit(told == static_cast<ssize_t>(said.size()) ? 0 : 1);
    }
    there.reset();
    std::string said;
    char room[4096];
    for (ssize_t got; (got = ::read(here.get(), room, sizeof room)) > 0;)
      said.append(room, static_cast<std::size_t>(got));
    EXPECT_EQ(::waitpid(child, nullptr, 0), child);
    return said;
  }

 private:
  bool enter() const {
    const uid_t uid = ::geteuid();
    const gid_t gid = ::getegid();
    const int user = uid == 0 ? 0 : CLONE_NEWUSER;
    if (::unshare(user | CLONE_NEWNET | CLONE_NEWNS) != 0) return false;
    if (user != 0) {
      const auto line = [](unsigned id) {
        return std::to_string(id) + " " + std::to_string(id) + " 1\n";
      };
      write_text("/proc/self/setgroups", "deny");
      write_text("/proc/self/uid_map", line(uid));
      write_text("/proc/self/gid_map", line(gid));
    }
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    for (const std::string file : {"hosts", "resolv.conf"}) {
      if (::mount((folder_ + "/" + file).c_str(), ("/etc/" + file).c_str(), nullptr, MS_BIND,
                  nullptr) != 0)
        return false;
    }
    return bring_up_loopback() && give_address("lo:1", "8.8.8.8") &&
           give_address("lo:2", "8.8.4.4") && route_elsewhere();
  }
  std::string folder_;
};

// Answers every question of `name_server` with "no such name" until the client has its answer.
std::string answer_of(const Fd& client, const Fd& name_server, std::set<std::string>& questions) {
  for (;;) {
    pollfd entries[] = {{client.get(), POLLIN, 0}, {name_server.get(), POLLIN, 0}};
    if (::poll(entries, 2, kPatienceMs) <= 0) return "(silence)";
    char room[4096];
    if (entries[1].revents != 0) {
      sockaddr_in from{};
      socklen_t size = sizeof from;
      const ssize_t got = ::recvfrom(name_server.get(), room, sizeof room, 0, raw(from), &size);
      std::string name;
      for (ssize_t at = 12; at < got && room[at] != 0; at += room[at] + 1)
        name += std::string(room + at + 1, static_cast<std::size_t>(room[at])) + ".";
      questions.insert(name);
      room[2] = static_cast<char>(0x81);  // an answer, recursion was asked for
      room[3] = static_cast<char>(0x83);  // and is there; NXDOMAIN
      (void)::sendto(name_server.get(), room, static_cast<std::size_t>(got), 0, raw(from), size);
    }
    if (entries[0].revents != 0) {
      const ssize_t got = ::recv(client.get(), room, sizeof room, 0);
      return std::string(room, static_cast<std::size_t>(got < 0 ? 0 : got));
    }
  }
}

// What the proxy answers to a tunnel to `target`, and behind it the names that were asked for.
std::string ask(const std::vector<std::string>& allowed, const std::string& target) {
  Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Fd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const Fd name_server(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in proxy_at = four("127.0.0.1", 3128), any = four("0.0.0.0", 443),
              names_at = four("127.0.0.1", 53);
  if (::bind(listener.get(), raw(proxy_at), sizeof proxy_at) != 0 ||
      ::listen(listener.get(), 8) != 0 || ::bind(server.get(), raw(any), sizeof any) != 0 ||
      ::listen(server.get(), 8) != 0 ||
      ::bind(name_server.get(), raw(names_at), sizeof names_at) != 0)
    return "(no sockets)";
  auto proxy = EgressProxy::start(std::move(listener), AllowList::parse(allowed).value());
  if (!proxy) return proxy.error().message();
  const Fd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(client.get(), raw(proxy_at), sizeof proxy_at) != 0) return "(no proxy)";
  const std::string request = "CONNECT " + target + " HTTP/1.1\r\n\r\n";
  if (::send(client.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0) return "(no request)";
  std::set<std::string> questions;
  std::string said = answer_of(client, name_server, questions) + "\nasked:";
  for (const std::string& name : questions) said += " " + name;
  return said + "\n";
}

TEST_F(HostNames, TheHostsOwnAddressesAreKnown) {
  EXPECT_EQ(
      run([] {
        std::string said;
        for (const char* address : {"8.8.8.8", "8.8.4.4", "127.0.0.1", "::1", "::ffff:8.8.8.8",
                                    "9.9.9.9", "192.0.2.1", "2606:4700::1111"})
          said += std::string(address) + (own(address) ? " own\n" : " another's\n");
        return said;
      }),
      "8.8.8.8 own\n8.8.4.4 own\n127.0.0.1 own\n::1 own\n::ffff:8.8.8.8 own\n"
      "9.9.9.9 another's\n192.0.2.1 another's\n2606:4700::1111 another's\n");
}

TEST_F(HostNames, ANameDoesNotLeadToThisHost) {
  const std::string said = run([] { return ask({"own.example.com"}, "own.example.com:443"); });
  EXPECT_THAT(said, StartsWith("HTTP/1.1 403 "));
  EXPECT_THAT(said, HasSubstr("leads to 8.8.4.4, an address of this host"));
  // Named itself it is meant.
  EXPECT_THAT(run([] { return ask({"8.8.4.4"}, "8.8.4.4:443"); }), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HostNames, NamesAreNotLookedForBelowTheHostsDomains) {
  for (const std::string name : {"other.example.com", "intranet"}) {
    const std::string said = run([&] { return ask({name}, name + ":443"); });
    EXPECT_THAT(said, StartsWith("HTTP/1.1 502 "));
    EXPECT_THAT(said, HasSubstr("asked: " + name + ".\n"));
    EXPECT_THAT(said, Not(HasSubstr("elsewhere")));
  }
}

}  // namespace
}  // namespace caisson::egress
