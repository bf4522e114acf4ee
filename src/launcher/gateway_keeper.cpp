#include "launcher/gateway_keeper.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/kernel_abi.h"
#include "base/paths.h"
#include "base/sys.h"
#include "launcher/gateway_protocol.h"
#include "launcher/minter_socket.h"

namespace caisson::launcher {
namespace {

constexpr std::uint64_t kRestartPauseUs = 1'000'000;
constexpr int kUpdatePatienceMs = 3000;
constexpr int kEndPatienceMs = 1500;
// In one go: more comes with the next turn.
constexpr int kMostRefused = 64;

void reset_waiting(int listener) {
  for (int taken = 0; taken < kMostRefused; ++taken) {
    const Fd connection(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) return;
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    (void)::setsockopt(connection.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
}

void drop_waiting(int socket) {
  char byte = 0;
  for (int taken = 0; taken < kMostRefused; ++taken) {
    if (::recv(socket, &byte, sizeof byte, MSG_DONTWAIT) < 0) return;
  }
}

enum class Listens : bool { kNo, kYes };

bool is_socket(const Fd& fd, int type, Listens listens) {
  const auto option = [&](int name) {
    int value = -1;
    socklen_t size = sizeof value;
    return ::getsockopt(fd.get(), SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
  };
  return option(SO_TYPE) == type && option(SO_DOMAIN) == AF_INET6 &&
         option(SO_ACCEPTCONN) == (listens == Listens::kYes ? 1 : 0);
}

// The text after `now`, whose sealed secrets stay where it has none of its own.
std::string with_secrets_of(const std::string& before, const std::string& now) {
  const std::size_t sealed = before.find('\n');
  return now.find('\n') != std::string::npos || sealed == std::string::npos
             ? now
             : now + before.substr(sealed);
}

bool comes_within(int fd, int milliseconds) {
  pollfd entry{fd, POLLIN, 0};
  return TEMP_FAILURE_RETRY(::poll(&entry, 1, milliseconds)) > 0;
}

}  // namespace

Status GatewayKeeper::hold(wall::Gateway sockets) {
  if (sockets_.valid()) return fail(Error::invalid("a second gateway"));
  const bool whole = is_socket(sockets.tcp, SOCK_STREAM, Listens::kYes) &&
                     is_socket(sockets.dns_tcp, SOCK_STREAM, Listens::kYes) &&
                     is_socket(sockets.dns_udp, SOCK_DGRAM, Listens::kNo);
  if (!whole) return fail(Error::invalid("a gateway of other sockets"));
  sockets_ = std::move(sockets);
  stop_waiting();
  return {};
}

// Whoever has had the sockets may have left them so that they wait.
void GatewayKeeper::stop_waiting() const {
  for (const Fd* socket : {&sockets_.tcp, &sockets_.dns_udp, &sockets_.dns_tcp})
    (void)::fcntl(socket->get(), F_SETFL, O_NONBLOCK);
}

Status GatewayKeeper::set_policy(std::string policy) {
  if (!sockets_.valid()) return fail(Error::precondition("the sandbox was made without a network"));
  if (halted_) return fail(Error::precondition("the sandbox is being ended"));
  if (policy.empty() || policy.size() > kMostLivePolicy)
    return fail(Error::exhausted("the network policy takes " + std::to_string(policy.size()) +
                                 " bytes as JSON; allowed are at most " +
                                 std::to_string(kMostLivePolicy)));
  const std::string next = with_secrets_of(policy_, policy);
  // What a change of secrets is to be judged by, a gateway alone knows.
  if (!runs() && files_.keys.valid() && !policy_.empty() && !start()) lose();
  if (!runs()) {
    policy_ = next;
    return {};
  }
  if (sys::send_message(control_.get(), kGatewayUpdate + policy, {})) {
    const Status updated = await_update();
    // It has judged it, and serves on by the one before.
    if (!updated.has_value() && updated.error().code() == Code::kInvalidArgument) return updated;
    // Where the one before is what it could not start with, the next one begins with this.
    if (!updated.has_value()) lose();
  } else {
    lose();
  }
  // The next one begins with it.
  policy_ = next;
  return {};
}

Status GatewayKeeper::await_update() {
  const std::uint64_t end_us = sys::monotonic_us() + kUpdatePatienceMs * 1000ull;
  for (;;) {
    const std::uint64_t now_us = sys::monotonic_us();
    if (now_us >= end_us ||
        !comes_within(control_.get(), static_cast<int>((end_us - now_us) / 1000)))
      return fail(Error(Code::kDeadlineExceeded, "the gateway does not answer"));
    TRY_ASSIGN(const sys::Message word, sys::recv_message(control_.get(), kMostGatewayMessage));
    if (take_record_word(word.bytes)) continue;
    if (word.bytes.starts_with(kGatewayUpdated)) return {};
    if (word.bytes.starts_with(kGatewayRefused)) return fail(Error::invalid(word.bytes.substr(1)));
    if (word.bytes.starts_with(kGatewayFailed))
      return fail(Error::unavailable("the gateway cannot start: " + word.bytes.substr(1)));
    if (!word.bytes.starts_with(kGatewayReady))
      return fail(Error::unavailable("the gateway has ended"));
  }
}

std::array<pollfd, GatewayKeeper::kEntries> GatewayKeeper::entries() const {
  const auto waits = [&](const Fd& socket) {
    return pollfd{runs() ? -1 : socket.get(), POLLIN, 0};
  };
  return {pollfd{control_.get(), POLLIN, 0}, waits(sockets_.tcp), waits(sockets_.dns_udp),
          waits(sockets_.dns_tcp)};
}

void GatewayKeeper::look(const std::array<pollfd, kEntries>& entries) {
  if (runs()) {
    // A change of the policy may have read its word already.
    if (entries[0].revents == 0 || !comes_within(control_.get(), 0)) return;
    // It says that it is ready, or it has ended.
    const auto word = sys::recv_message(control_.get(), kMostGatewayMessage);
    if (word.has_value() && take_record_word(word->bytes)) return;
    if (!word.has_value() || !word->bytes.starts_with(kGatewayReady)) lose();
    return;
  }
  const bool comes = std::ranges::any_of(
      entries, [](const pollfd& entry) { return entry.fd >= 0 && entry.revents != 0; });
  if (!comes) return;
  const bool too_early = lost_at_us_ != 0 && sys::monotonic_us() - lost_at_us_ < kRestartPauseUs;
  if (policy_.empty() || too_early || halted_) return refuse_waiting();
  if (!start()) {
    lose();
    refuse_waiting();
  }
}

Status GatewayKeeper::start() {
  TRY_ASSIGN(const std::string program, helper_binary("caisson-gateway"));
  TRY_ASSIGN(SocketPair pair, make_socket_pair(SOCK_SEQPACKET));
  TRY_ASSIGN(const Fd policy, sys::memory_file("network-policy", policy_));
  control_ = std::move(pair.ours);
  // Who does not read must not hold us.
  if (::fcntl(control_.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno("fcntl F_SETFL");
  std::vector<std::string> arguments = {program, std::to_string(::getpid())};
  if (floor_ == Floor::kFixed) arguments.emplace_back(kGatewayFixedFloor);
  TRY(child_.start(program, arguments, std::array{pair.theirs.get()}));
  std::vector<int> files = {policy.get()};
  std::string first = sandbox_ + "\n";
  const auto add = [&](const Fd& file, char letter) {
    if (!file.valid()) return;
    files.push_back(file.get());
    first += letter;
  };
  Fd head;
  if (files_.records.file.valid()) {
    TRY_ASSIGN(const std::string known,
               sys::read_again(files_.records.head.get(), kAuditHeadBytes));
    TRY_ASSIGN(head, sys::memory_file("audit-head", known));
  }
  add(files_.records.file, kGatewayRecords);
  add(files_.records.chain, kGatewayChain);
  add(head, kGatewayHead);
  add(files_.keys, kGatewayKeys);
  add(files_.served, kGatewayServed);
  add(files_.alarm, kGatewayAlarm);
  Fd values;
  if (files_.minter.valid()) {
    TRY_ASSIGN(values, connect_minter(files_.minter.get()));
    add(values, kGatewayMinter);
  }
  TRY(sys::send_message(control_.get(), first, files));
  return sys::send_message(
      control_.get(), std::string_view(&kGatewayServe, 1),
      std::array{sockets_.tcp.get(), sockets_.dns_udp.get(), sockets_.dns_tcp.get()});
}

bool GatewayKeeper::take_record_word(std::string_view word) {
  if (!word.starts_with(kGatewaySealed)) return false;
  keep_head(word.substr(1));
  return true;
}

void GatewayKeeper::keep_head(std::string_view bytes) const {
  constexpr std::size_t kNumber = 8;
  if (bytes.size() != kAuditHeadBytes || !files_.records.head.valid()) return;
  const auto known = sys::read_again(files_.records.head.get(), kAuditHeadBytes);
  // Later ones alone, whatever has become of the gateway.
  if (!known.has_value() || bytes.substr(0, kNumber) <= std::string_view(*known).substr(0, kNumber))
    return;
  (void)::pwrite(files_.records.head.get(), bytes.data(), bytes.size(), 0);
}

void GatewayKeeper::lose() {
  control_.reset();
  (void)child_.end();
  stop_waiting();
  lost_at_us_ = sys::monotonic_us();
}

void GatewayKeeper::refuse_waiting() {
  reset_waiting(sockets_.tcp.get());
  reset_waiting(sockets_.dns_tcp.get());
  drop_waiting(sockets_.dns_udp.get());
}

void GatewayKeeper::end() {
  if (!runs()) return;
  // Its end of the pair is closed when it has written what it had to.
  if (::shutdown(control_.get(), SHUT_WR) == 0) {
    const std::uint64_t end_us = sys::monotonic_us() + kEndPatienceMs * 1000ull;
    while (comes_within(control_.get(), kEndPatienceMs)) {
      const auto word = sys::recv_message(control_.get(), kMostGatewayMessage);
      if (!word.has_value() || word->bytes.empty() || word->bytes.starts_with(kGatewayDone)) break;
      (void)take_record_word(word->bytes);
      if (sys::monotonic_us() >= end_us) break;
    }
  }
  lose();
}

}  // namespace caisson::launcher
