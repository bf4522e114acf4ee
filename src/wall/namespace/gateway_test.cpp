#include "wall/namespace/gateway.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <iterator>
#include <string>

#include "base/kernel_abi.h"
#include "base/sys.h"
#include "wall/namespace/nft_ruleset.h"

namespace caisson::wall {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Runs `body` in a child that is root of user and network namespaces of its own, as set-up's helper
// is; what it returns is what is wrong. Both namespaces end with it.
template <typename Body>
std::string in_own_namespaces(Body body) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return "pipe2";
  Fd said(ends[0]), say(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);
    const std::string uid = std::to_string(::geteuid()), gid = std::to_string(::getegid());
    std::string fault;
    if (::unshare(CLONE_NEWUSER) != 0 ||
        !sys::write_file(AT_FDCWD, "/proc/self/setgroups", "deny") ||
        !sys::write_file(AT_FDCWD, "/proc/self/uid_map", "0 " + uid + " 1") ||
        !sys::write_file(AT_FDCWD, "/proc/self/gid_map", "0 " + gid + " 1") ||
        ::unshare(CLONE_NEWNET) != 0)
      fault = "no namespaces";
    else
      fault = body();
    (void)!::write(say.get(), fault.data(), fault.size());
    ::_exit(0);
  }
  say.reset();
  std::string fault;
  char buffer[1024];
  for (ssize_t got; (got = ::read(said.get(), buffer, sizeof buffer)) > 0;)
    fault.append(buffer, static_cast<std::size_t>(got));
  int status = 0;
  ::waitpid(child, &status, 0);
  return status == 0 ? fault : "the child was killed; " + fault;
}

#define SKIP_WITHOUT_NAMESPACES(fault) \
  if ((fault) == "no namespaces") GTEST_SKIP() << "this host gives no user namespaces"

std::string fault_of(const Status& status) {
  return status.has_value() ? "" : status.error().message();
}

template <typename Address>
socklen_t fill(Address& address, int family, const char* text, std::uint16_t port) {
  std::memset(&address, 0, sizeof address);
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(address);
  auto& ipv6 = reinterpret_cast<sockaddr_in6&>(address);
  address.ss_family = static_cast<sa_family_t>(family);
  if (family == AF_INET) {
    ipv4.sin_port = htons(port);
    ::inet_pton(AF_INET, text, &ipv4.sin_addr);
    return sizeof ipv4;
  }
  ipv6.sin6_port = htons(port);
  ::inet_pton(AF_INET6, text, &ipv6.sin6_addr);
  return sizeof ipv6;
}

// The errno of a connection from the workload's namespace to the address; 0 where it was accepted
// and had that destination.
int connect_through(const Gateway& gateway, int family, const char* text, std::uint16_t port) {
  const Fd client(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_storage wanted{};
  const socklen_t size = fill(wanted, family, text, port);
  if (::connect(client.get(), reinterpret_cast<const sockaddr*>(&wanted), size) != 0) return errno;
  pollfd entry{gateway.tcp.get(), POLLIN, 0};
  if (::poll(&entry, 1, 2000) != 1) return ETIMEDOUT;
  const Fd server(::accept4(gateway.tcp.get(), nullptr, nullptr, SOCK_CLOEXEC));
  constexpr int original_destination = 80;
  sockaddr_storage found{};
  socklen_t length = sizeof found;
  const int level = family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
  if (::getsockopt(server.get(), level, original_destination, &found, &length) != 0) return errno;
  return std::memcmp(&found, &wanted, size) == 0 ? 0 : EBADMSG;
}

TEST(Gateway, TakesEveryConnectionAndKnowsWhereItWasTo) {
  const std::string fault = in_own_namespaces([]() -> std::string {
    auto gateway = make_gateway(0);
    if (!gateway) return gateway.error().message();
    if (const int e = connect_through(*gateway, AF_INET, "192.0.2.7", 443))
      return std::string("IPv4: ") + std::strerror(e);
    if (const int e = connect_through(*gateway, AF_INET6, "2001:db8::7", 22))
      return std::string("IPv6: ") + std::strerror(e);
    if (const int e = connect_through(*gateway, AF_INET, kGatewayAddress, 22))
      return std::string("the gateway's own address: ") + std::strerror(e);
    if (connect_through(*gateway, AF_INET, kGatewayAddress, kGatewayTcpPort) != ECONNREFUSED)
      return "the listener is reached by its own port";
    if (connect_through(*gateway, AF_INET6, kGatewayAddress6, kGatewayTcpPort) != ECONNREFUSED)
      return "the listener is reached by its own port over IPv6";
    return "";
  });
  SKIP_WITHOUT_NAMESPACES(fault);
  EXPECT_EQ(fault, "");
}

TEST(Gateway, ItsSocketsNeverWaitAndGoNowhereElse) {
  const std::string fault = in_own_namespaces([]() -> std::string {
    const auto gateway = make_gateway(0);
    if (!gateway) return gateway.error().message();
    for (const Fd* file : {&gateway->tcp, &gateway->dns_udp, &gateway->dns_tcp}) {
      if ((::fcntl(file->get(), F_GETFL) & O_NONBLOCK) == 0) return "a socket waits";
      if ((::fcntl(file->get(), F_GETFD) & FD_CLOEXEC) == 0) return "a socket is passed on";
    }
    if (::accept4(gateway->tcp.get(), nullptr, nullptr, 0) >= 0 || errno != EAGAIN)
      return "something was accepted";
    if (::accept4(gateway->dns_tcp.get(), nullptr, nullptr, 0) >= 0 || errno != EAGAIN)
      return "something was accepted for DNS";
    // The caller is in the workload's namespace, which is another one.
    struct stat here{}, there{};
    const Fd ours(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
    if (::fstat(ours.get(), &here) != 0 || ::fstat(gateway->namespace_fd.get(), &there) != 0)
      return "fstat";
    return here.st_ino == there.st_ino ? "the namespaces are the same" : "";
  });
  SKIP_WITHOUT_NAMESPACES(fault);
  EXPECT_EQ(fault, "");
}

TEST(Gateway, WhenNobodyHoldsItsSocketsConnectionsAreRefused) {
  const std::string fault = in_own_namespaces([]() -> std::string {
    auto gateway = make_gateway(0);
    if (!gateway) return gateway.error().message();
    gateway->tcp.reset();
    for (const int family : {AF_INET, AF_INET6}) {
      const int e =
          connect_through(*gateway, family, family == AF_INET ? "192.0.2.7" : "2001:db8::7", 80);
      if (e != ECONNREFUSED) return std::string("it met ") + std::strerror(e);
    }
    return "";
  });
  SKIP_WITHOUT_NAMESPACES(fault);
  EXPECT_EQ(fault, "");
}

TEST(Gateway, FromItsNamespaceTheWorkloadsServersAreReached) {
  const std::string fault = in_own_namespaces([]() -> std::string {
    const auto gateway = make_gateway(0);
    if (!gateway) return gateway.error().message();
    for (const int family : {AF_INET, AF_INET6}) {
      const Fd server(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      sockaddr_storage address{};
      const char* text = family == AF_INET ? kWorkloadAddress : kWorkloadAddress6;
      const socklen_t size = fill(address, family, text, 8080);
      if (::bind(server.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
          ::listen(server.get(), 1) != 0)
        return "no server";
      const Fd here(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
      if (::setns(gateway->namespace_fd.get(), CLONE_NEWNET) != 0) return "setns";
      const Fd client(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::setns(here.get(), CLONE_NEWNET) != 0) return "setns back";
      if (::connect(client.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0)
        return std::string("connect: ") + std::strerror(errno);
    }
    return "";
  });
  SKIP_WITHOUT_NAMESPACES(fault);
  EXPECT_EQ(fault, "");
}

TEST(Gateway, RulesThatAreNotAllThereAreNoticed) {
  const std::string fault = in_own_namespaces([]() -> std::string {
    const auto filter = netlink::Socket::open(NETLINK_NETFILTER);
    if (!filter) return filter.error().message();
    NftRuleset less = gateway_ruleset();
    less.rules.erase(less.rules.begin() + 4);
    if (const auto loaded = load_ruleset(*filter, less, 0); !loaded)
      return loaded.error().message();
    if (const std::string same = fault_of(check_ruleset(*filter, less)); !same.empty()) return same;
    return "said " + fault_of(check_ruleset(*filter, gateway_ruleset()));
  });
  SKIP_WITHOUT_NAMESPACES(fault);
  EXPECT_THAT(fault, HasSubstr("12 rules instead of 13"));
}

TEST(Gateway, ATransactionThatFailsLeavesNothingAndNamesTheMessage) {
  const std::string fault = in_own_namespaces([]() -> std::string {
    const auto filter = netlink::Socket::open(NETLINK_NETFILTER);
    if (!filter) return filter.error().message();
    NftRuleset broken = gateway_ruleset();
    broken.rules[7].expressions.back().name = "nosuchthing";
    const auto loaded = load_ruleset(*filter, broken, 0);
    if (loaded) return "it was loaded";
    if (const std::string left = fault_of(check_ruleset(*filter, {})); !left.empty()) return left;
    return loaded.error().message() + " errno " + std::to_string(loaded.error().error_number());
  });
  SKIP_WITHOUT_NAMESPACES(fault);
  EXPECT_THAT(fault, HasSubstr("the redirection of TCP (nft_redir)"));
  EXPECT_THAT(fault, HasSubstr("errno " + std::to_string(ENOENT)));
}

#if defined(CAISSON_TEST_SWITCHES)
TEST(Gateway, ARuleThatIsLeftOutMakesNoGateway) {
  const std::string fault = in_own_namespaces([]() -> std::string {
    const auto made = make_gateway(bit_of(Mechanism::kGatewayRules));
    return made ? "it was made" : made.error().message();
  });
  SKIP_WITHOUT_NAMESPACES(fault);
  EXPECT_THAT(fault, HasSubstr("12 rules instead of 13"));
}
#endif

TEST(Gateway, ItsPiecesCanBeTriedOneByOne) {
  const std::string wire = in_own_namespaces([] { return fault_of(try_wire()); });
  SKIP_WITHOUT_NAMESPACES(wire);
  EXPECT_EQ(wire, "");
  for (const RulePiece piece : {RulePiece::kRedirect, RulePiece::kReject}) {
    const std::string fault = in_own_namespaces([&] { return fault_of(try_rules(piece)); });
    SKIP_WITHOUT_NAMESPACES(fault);
    EXPECT_EQ(fault, "");
  }
}

// From here on socket(family, …, protocol) gives this error: a kernel that was built without it.
Status forbid_socket(unsigned family, unsigned protocol, int error) {
  const sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_socket, 0, 5),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[0])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, family, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, protocol, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog filter = {std::size(program), const_cast<sock_filter*>(program)};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
    return fail_errno("prctl");
  return {};
}

TEST(Gateway, AKernelThatLacksAPieceIsToldWhichAndWhatHelps) {
  struct Case {
    unsigned family, protocol;
    int error;
    const char* piece;
    const char* remedy;
  };
  for (const Case& entry : {Case{AF_NETLINK, NETLINK_NETFILTER, EPROTONOSUPPORT, "needs nftables",
                                 "modprobe -a nf_tables"},
                            Case{AF_INET6, 0, EAFNOSUPPORT, "needs IPv6", "ipv6.disable=1"}}) {
    const std::string fault = in_own_namespaces([&]() -> std::string {
      if (const Status done = forbid_socket(entry.family, entry.protocol, entry.error); !done)
        return done.error().message();
      const auto made = make_gateway(0);
      if (made) return "it was made";
      return std::string(to_string(made.error().code())) + " " + made.error().message();
    });
    SKIP_WITHOUT_NAMESPACES(fault);
    EXPECT_THAT(fault, StartsWith("failed_precondition "));
    EXPECT_THAT(fault, HasSubstr(entry.piece));
    EXPECT_THAT(fault, HasSubstr(entry.remedy));
  }
}

TEST(Gateway, WithoutRightsThereIsNone) {
  // In a process that is nobody's: root would have the rights.
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    constexpr unsigned kNobody = 65534;
    if (::geteuid() == 0 && ::setresuid(kNobody, kNobody, kNobody) != 0) ::_exit(200);
    const auto made = make_gateway(0);
    ::_exit(made.has_value() ? 0 : made.error().error_number());
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), EPERM);
}

TEST(GatewayWire, BothSidesFitAndAskForEveryAnswer) {
  for (const netlink::Batch& batch : {gateway_side(3), workload_side()}) {
    EXPECT_TRUE(batch.fits());
    for (std::size_t number = 1; number <= batch.size(); ++number)
      EXPECT_TRUE(batch.wants_answer(number)) << batch.what(number);
  }
  EXPECT_EQ(gateway_side(3).size(), 5u);
  EXPECT_EQ(workload_side().size(), 6u);
}

}  // namespace
}  // namespace caisson::wall
