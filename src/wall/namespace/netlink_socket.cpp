// The socket to the kernel, over which netlink messages go.
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "base/kernel_abi.h"
#include "wall/namespace/netlink.h"

namespace caisson::wall::netlink {
namespace {

// The longest that the kernel answers with in one piece.
constexpr std::size_t kReadBytes = 32 * 1024;

}  // namespace

Result<Socket> Socket::open(int protocol) {
  Fd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
  if (!socket.valid()) return fail_errno("socket netlink");
  const int on = 1;
  // Without them an error has a number alone.
  (void)::setsockopt(socket.get(), SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on);
  (void)::setsockopt(socket.get(), SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on);
  return Socket(std::move(socket));
}

Result<std::string> Socket::exchange(const Batch& batch) const {
  if (!batch.fits()) return fail(Error::internal("netlink: a batch of messages is too long"));
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  const std::string& bytes = batch.encoded();
  if (::sendto(socket_.get(), bytes.data(), bytes.size(), 0,
               reinterpret_cast<const sockaddr*>(&kernel),
               sizeof kernel) != static_cast<ssize_t>(bytes.size()))
    return fail_errno(std::string("send ") + batch.what(1));
  std::string answers;
  std::string piece(kReadBytes, '\0');
  for (;;) {
    sockaddr_nl from{};
    iovec part{piece.data(), piece.size()};
    msghdr message{};
    message.msg_name = &from;
    message.msg_namelen = sizeof from;
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    const ssize_t count = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return answers;
    if (count < 0) return fail_errno(std::string("receive the answer to ") + batch.what(1));
    if (from.nl_pid != 0) continue;  // the kernel alone has this number
    if ((message.msg_flags & MSG_TRUNC) != 0 ||
        answers.size() + static_cast<std::size_t>(count) > kMostBytes)
      return fail(Error::internal(std::string(batch.what(1)) + ": the answer is too long"));
    answers.append(piece, 0, static_cast<std::size_t>(count));
    answers.resize(NLMSG_ALIGN(answers.size()), '\0');
  }
}

Status Socket::commit(const Batch& batch) const {
  TRY_ASSIGN(const std::string bytes, exchange(batch));
  TRY_ASSIGN(const auto answers, split_answers(bytes));
  std::vector<bool> answered(batch.size() + 1);
  std::optional<std::pair<std::uint32_t, Verdict>> first;
  for (const Answer& answer : answers) {
    if (answer.type != NLMSG_ERROR) continue;
    TRY_ASSIGN(Verdict verdict, read_verdict(answer));
    if (answer.number <= batch.size()) answered[answer.number] = true;
    if (verdict.error != 0 && (!first || answer.number < first->first))
      first = {answer.number, std::move(verdict)};
  }
  if (first) {
    Error error = Error::syscall(batch.what(first->first), first->second.error);
    return fail(first->second.text.empty()
                    ? std::move(error)
                    : Error::syscall(batch.what(first->first) + (": " + first->second.text),
                                     first->second.error));
  }
  for (std::size_t number = 1; number <= batch.size(); ++number) {
    if (batch.wants_answer(number) && !answered[number])
      return fail(Error::internal(std::string(batch.what(number)) + ": the kernel gave no answer"));
  }
  return {};
}

Result<std::string> Socket::ask(const Batch& batch) const {
  TRY_ASSIGN(std::string bytes, exchange(batch));
  TRY_ASSIGN(const auto answers, split_answers(bytes));
  for (const Answer& answer : answers) {
    if (answer.type != NLMSG_ERROR) continue;
    TRY_ASSIGN(const Verdict verdict, read_verdict(answer));
    if (verdict.error != 0) return fail(Error::syscall(batch.what(answer.number), verdict.error));
  }
  return bytes;
}

Result<Fd> Socket::network() const {
  Fd space(::ioctl(socket_.get(), SIOCGSKNS));
  if (!space.valid()) return fail_errno("ioctl SIOCGSKNS");
  return space;
}

}  // namespace caisson::wall::netlink
