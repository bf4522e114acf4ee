#include "vault/client.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/child_process.h"
#include "base/companion.h"
#include "base/paths.h"
#include "base/sys.h"
#include "policy/network_document.h"
#include "policy/upstream_proxy.h"

namespace caisson::vault {
namespace {

// It makes a key at most.
constexpr timeval kStartPatience{30, 0};

Status wait_at_most(const Fd& socket, const timeval& patience) {
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) != 0)
    return fail_errno("setsockopt SO_RCVTIMEO");
  return {};
}

Status make_room(const Fd& socket) {
  constexpr int kRoom = 2 * kMostRequest;
  if (::setsockopt(socket.get(), SOL_SOCKET, SO_SNDBUF, &kRoom, sizeof kRoom) != 0)
    return fail_errno("setsockopt SO_SNDBUF");
  return {};
}

// The socket waits for nobody (the server's loop looks for its end).
Status send_in_time(int control_fd, std::string_view bytes, std::span<const int> descriptors) {
  const std::uint64_t until = sys::monotonic_us() + std::chrono::microseconds(kPatience).count();
  for (;;) {
    const auto sent = sys::send_message(control_fd, bytes, descriptors);
    if (sent.has_value() || sent.error().error_number() != EAGAIN || sys::monotonic_us() >= until)
      return sent;
    pollfd entry{control_fd, POLLOUT, 0};
    // Writable is one that has much room; there may be enough before.
    constexpr int kLookAgainMs = 20;
    static_cast<void>(::poll(&entry, 1, kLookAgainMs));
  }
}

Error gone() {
  return Error::unavailable(
      "caisson-vault, which has the secrets, has ended, and is started again; try again");
}

Error silent() {
  return Error::unavailable("caisson-vault, which has the secrets, does not answer");
}

}  // namespace

Result<Client> Client::start() {
  TRY_ASSIGN(const std::string path, helper_binary("caisson-vault"));
  TRY_ASSIGN(SocketPair pair, make_socket_pair(SOCK_SEQPACKET));
  TRY(make_room(pair.ours));
  TRY(start_companion(path, {"caisson-vault"}, std::move(pair.theirs)));
  return greet(std::move(pair.ours));
}

Result<Client> Client::greet(Fd control) {
  Client client(std::move(control));
  TRY(wait_at_most(client.control_, kStartPatience));
  auto told = sys::recv_message(client.control_fd(), kMostAnswer);
  if (!told.has_value() || told->bytes.empty())
    return fail(Error::unavailable("caisson-vault has ended, or says nothing, as it starts"));
  TRY_ASSIGN(const auto texts, decode_answer(told->bytes));
  if (!texts.empty()) client.not_locked_ = texts[0];
  TRY(wait_at_most(client.control_, {}));
  return client;
}

Result<Client::Reply> Client::ask(const Request& request, std::size_t texts, int body_fd) const {
  const SecretBytes bytes = encode(request);
  if (bytes.size() > kMostRequest)
    return fail(Error::invalid("the secrets of one sandbox are too long: found " +
                               std::to_string(bytes.size()) + " bytes, allowed are " +
                               std::to_string(kMostRequest)));
  TRY_ASSIGN(SocketPair pair, make_socket_pair(SOCK_SEQPACKET));
  TRY(wait_at_most(pair.ours, {kPatience.count(), 0}));
  std::vector<int> descriptors = {pair.theirs.get()};
  if (body_fd >= 0) descriptors.push_back(body_fd);
  const auto sent = send_in_time(control_.get(), {bytes.data(), bytes.size()}, descriptors);
  if (!sent.has_value()) {
    const int error_number = sent.error().error_number();
    if (error_number == EPIPE || error_number == ECONNRESET) return fail(gone());
    return fail(error_number == EAGAIN ? silent() : sent.error());
  }
  // So that its end is seen.
  pair.theirs.reset();
  auto message = sys::recv_message(pair.ours.get(), kMostAnswer);
  if (!message.has_value()) {
    const int error_number = message.error().error_number();
    if (error_number == EAGAIN) return fail(silent());
    return fail(error_number == ECONNRESET ? gone() : message.error());
  }
  if (message->bytes.empty()) return fail(gone());
  Reply reply;
  TRY_ASSIGN(reply.texts, decode_answer(message->bytes));
  reply.descriptors = std::move(message->descriptors);
  const bool is_list = request.operation == Operation::kSeal;
  if (is_list ? reply.texts.size() < texts : reply.texts.size() != texts)
    return fail(Error(Code::kDataLoss, "an answer of caisson-vault that is not whole"));
  return reply;
}

Result<Sealed> Client::seal(const policy::NetworkPolicy& policy,
                            std::span<const GivenSecret> values, std::string_view before) const {
  if (policy::rules_with_values(policy).empty()) return Sealed();
  policy::NetworkPolicy carrier;
  carrier.secrets = policy.secrets;
  carrier.upstream_proxy = policy.upstream_proxy;
  TRY_ASSIGN(Reply reply, ask({.operation = Operation::kSeal,
                               .rules = policy::written(carrier),
                               .before = std::string(before),
                               .values = {values.begin(), values.end()}},
                              1));
  Sealed sealed{.text = std::move(reply.texts[0]), .variables = {}};
  for (std::size_t at = 1; at + 1 < reply.texts.size(); at += 2)
    sealed.variables.emplace(std::move(reply.texts[at]), std::move(reply.texts[at + 1]));
  return sealed;
}

Result<Kept> Client::keep(std::string_view id, int body_fd) const {
  TRY_ASSIGN(Reply reply, ask({.operation = Operation::kKeep, .id = std::string(id)}, 2, body_fd));
  return Kept{.sealed = std::move(reply.texts[0]), .rest = std::move(reply.texts[1])};
}

Result<NetworkKeys> Client::make_keys() const {
  TRY_ASSIGN(Reply reply, ask({.operation = Operation::kMakeKeys}, 2));
  if (reply.descriptors.size() != 1)
    return fail(Error(Code::kDataLoss, "keys of caisson-vault without their file"));
  return NetworkKeys{.number = std::move(reply.texts[0]),
                     .file = std::make_shared<const Fd>(std::move(reply.descriptors[0])),
                     .certificate = std::move(reply.texts[1])};
}

Result<std::string> Client::seal_for_gateway(std::string_view number,
                                             std::string_view sealed) const {
  TRY_ASSIGN(Reply reply, ask({.operation = Operation::kSealForGateway,
                               .id = std::string(number),
                               .sealed = std::string(sealed)},
                              1));
  return std::move(reply.texts[0]);
}

}  // namespace caisson::vault
