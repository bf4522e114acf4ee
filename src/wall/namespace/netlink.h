// Netlink messages: writing them, sending them, reading what the kernel answers.
//
// The set-up of a sandbox's network (gateway.h) needs some thirty messages of two protocols,
// rtnetlink and nfnetlink, in a small static program: the usual libraries are either too large or
// have no static archive (libmnl, without which libnftnl does not link). Attributes and Batch are
// values without a system call; everything is bounded, and what does not fit is an error of
// commit(), never a cut message. The kernel works on a message within the call that sends it, so
// that its answers are all there afterwards and nothing here ever waits. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::wall::netlink {

// Of one batch, and of all answers to one dump.
inline constexpr std::size_t kMostBytes = 64 * 1024;

// A list of attributes, as a message has them and as one of them may hold them.
class Attributes {
 public:
  // Numbers are the host's unless they are called big.
  Attributes& bytes(std::uint16_t type, std::string_view value);
  Attributes& text(std::uint16_t type, std::string_view value);  // with a NUL at its end
  Attributes& u8(std::uint16_t type, std::uint8_t value);
  Attributes& u32(std::uint16_t type, std::uint32_t value);
  Attributes& big_u32(std::uint16_t type, std::uint32_t value);
  Attributes& big_u64(std::uint16_t type, std::uint64_t value);
  // An attribute that holds `inner`, behind the bytes of `header` where it has one.
  Attributes& nest(std::uint16_t type, const Attributes& inner, std::string_view header = {});

  const std::string& encoded() const { return bytes_; }
  // False once an attribute was longer than its length field can say.
  bool fits() const { return fits_; }

 private:
  std::string bytes_;
  bool fits_ = true;
};

// The bytes of a plain struct or number.
template <typename Value>
std::string_view raw(const Value& value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

// Messages that are sent together. `what` names a message in errors; it is a literal.
class Batch {
 public:
  // NLM_F_REQUEST is set in any case. `header` is the protocol's own.
  void add(std::uint16_t type, std::uint16_t flags, std::string_view header,
           const Attributes& attributes, const char* what);
  const std::string& encoded() const { return bytes_; }
  bool fits() const { return fits_; }
  // The messages number from 1.
  std::size_t size() const { return messages_.size(); }
  const char* what(std::size_t number) const;
  bool wants_answer(std::size_t number) const;

 private:
  struct Message {
    const char* what;
    bool wants_answer;
  };
  std::string bytes_;
  std::vector<Message> messages_;
  bool fits_ = true;
};

// What the kernel says. Views into the bytes that were read.
struct Answer {
  std::uint16_t type = 0, flags = 0;
  std::uint32_t number = 0;  // of the message that it answers
  std::string_view payload;
};
struct Attribute {
  std::uint16_t type = 0;  // without the flags
  bool nested = false;     // flagged as holding attributes; the kernel does not always say so
  std::string_view value;
};
// Error: data_loss where lengths contradict each other.
Result<std::vector<Answer>> split_answers(std::string_view bytes);
Result<std::vector<Attribute>> split_attributes(std::string_view bytes);
// The first attribute of this type; empty where there is none.
std::string_view find(const std::vector<Attribute>& attributes, std::uint16_t type);

// An answer of type NLMSG_ERROR: 0 or the errno, and the kernel's own sentence, which may be empty.
struct Verdict {
  int error = 0;
  std::string text;
};
Result<Verdict> read_verdict(const Answer& answer);

// Whether every attribute of `asked` is in `told`, nested ones by the same rule. What a newer
// kernel tells beside them is no difference. Error: data_loss where one of them is malformed.
Result<bool> holds(std::string_view told, std::string_view asked);

class Socket {
 public:
  // `protocol` as NETLINK_ROUTE; the socket belongs to the network namespace of the moment.
  static Result<Socket> open(int protocol);

  // Sends the messages and takes every answer. Error: the first message that failed, by name, with
  // the errno and the kernel's sentence; internal where an answer that was asked for is missing.
  Status commit(const Batch& batch) const;
  // Sends messages that ask for data: the answers' bytes, for split_answers().
  Result<std::string> ask(const Batch& batch) const;
  // The socket's network namespace.
  Result<Fd> network() const;

 private:
  explicit Socket(Fd socket) : socket_(std::move(socket)) {}
  Result<std::string> exchange(const Batch& batch) const;

  Fd socket_;
};

}  // namespace caisson::wall::netlink
