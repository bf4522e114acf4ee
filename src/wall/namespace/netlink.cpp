#include "wall/namespace/netlink.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include "base/kernel_abi.h"

namespace caisson::wall::netlink {
namespace {

// Its length field has 16 bits.
constexpr std::size_t kMostAttribute = 0xffff;
constexpr int kMostErrno = 4095;  // of the kernel's own

constexpr std::size_t aligned(std::size_t size) {
  return (size + NLMSG_ALIGNTO - 1) & ~std::size_t{NLMSG_ALIGNTO - 1};
}

void pad(std::string& bytes) {
  bytes.resize(aligned(bytes.size()), '\0');
}

template <typename Header>
Header read_header(std::string_view bytes) {
  Header header{};
  std::memcpy(&header, bytes.data(), sizeof header);
  return header;
}

Error malformed(const char* what) {
  return {Code::kDataLoss, std::string("netlink: ") + what + " with a length that cannot be"};
}

}  // namespace

Attributes& Attributes::bytes(std::uint16_t type, std::string_view value) {
  if (sizeof(nlattr) + value.size() > kMostAttribute) {
    fits_ = false;
    return *this;
  }
  const nlattr header{static_cast<std::uint16_t>(sizeof(nlattr) + value.size()), type};
  bytes_.append(raw(header)).append(value);
  pad(bytes_);
  return *this;
}

Attributes& Attributes::text(std::uint16_t type, std::string_view value) {
  return bytes(type, std::string(value) + '\0');
}

Attributes& Attributes::u8(std::uint16_t type, std::uint8_t value) {
  return bytes(type, raw(value));
}

Attributes& Attributes::u32(std::uint16_t type, std::uint32_t value) {
  return bytes(type, raw(value));
}

Attributes& Attributes::big_u32(std::uint16_t type, std::uint32_t value) {
  const char big[] = {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
                      static_cast<char>(value >> 8), static_cast<char>(value)};
  return bytes(type, {big, sizeof big});
}

Attributes& Attributes::big_u64(std::uint16_t type, std::uint64_t value) {
  std::string big;
  for (int shift = 56; shift >= 0; shift -= 8) big += static_cast<char>(value >> shift);
  return bytes(type, big);
}

Attributes& Attributes::nest(std::uint16_t type, const Attributes& inner, std::string_view header) {
  fits_ = fits_ && inner.fits_;
  std::string value(header);
  pad(value);
  return bytes(type | NLA_F_NESTED, value + inner.bytes_);
}

void Batch::add(std::uint16_t type, std::uint16_t flags, std::string_view header,
                const Attributes& attributes, const char* what) {
  const std::size_t size = sizeof(nlmsghdr) + aligned(header.size()) + attributes.encoded().size();
  fits_ = fits_ && attributes.fits() && bytes_.size() + size <= kMostBytes;
  if (!fits_) return;
  messages_.push_back({what, (flags & NLM_F_ACK) != 0});
  const nlmsghdr start{static_cast<std::uint32_t>(size), type,
                       static_cast<std::uint16_t>(flags | NLM_F_REQUEST),
                       static_cast<std::uint32_t>(messages_.size()), 0};
  bytes_.append(raw(start)).append(header);
  pad(bytes_);
  bytes_ += attributes.encoded();
}

const char* Batch::what(std::size_t number) const {
  return number >= 1 && number <= messages_.size() ? messages_[number - 1].what : "netlink";
}

bool Batch::wants_answer(std::size_t number) const {
  return number >= 1 && number <= messages_.size() && messages_[number - 1].wants_answer;
}

Result<std::vector<Answer>> split_answers(std::string_view bytes) {
  std::vector<Answer> answers;
  while (!bytes.empty()) {
    if (bytes.size() < sizeof(nlmsghdr)) return fail(malformed("a message"));
    const auto header = read_header<nlmsghdr>(bytes);
    if (header.nlmsg_len < sizeof(nlmsghdr) || header.nlmsg_len > bytes.size())
      return fail(malformed("a message"));
    answers.push_back({header.nlmsg_type, header.nlmsg_flags, header.nlmsg_seq,
                       bytes.substr(0, header.nlmsg_len).substr(sizeof(nlmsghdr))});
    bytes.remove_prefix(std::min(aligned(header.nlmsg_len), bytes.size()));
  }
  return answers;
}

Result<std::vector<Attribute>> split_attributes(std::string_view bytes) {
  std::vector<Attribute> attributes;
  while (!bytes.empty()) {
    if (bytes.size() < sizeof(nlattr)) return fail(malformed("an attribute"));
    const auto header = read_header<nlattr>(bytes);
    if (header.nla_len < sizeof(nlattr) || header.nla_len > bytes.size())
      return fail(malformed("an attribute"));
    attributes.push_back({static_cast<std::uint16_t>(header.nla_type & NLA_TYPE_MASK),
                          (header.nla_type & NLA_F_NESTED) != 0,
                          bytes.substr(0, header.nla_len).substr(sizeof(nlattr))});
    bytes.remove_prefix(std::min(aligned(header.nla_len), bytes.size()));
  }
  return attributes;
}

std::string_view find(const std::vector<Attribute>& attributes, std::uint16_t type) {
  const auto found = std::ranges::find(attributes, type, &Attribute::type);
  return found == attributes.end() ? std::string_view() : found->value;
}

Result<Verdict> read_verdict(const Answer& answer) {
  if (answer.payload.size() < sizeof(nlmsgerr)) return fail(malformed("a verdict"));
  const auto said = read_header<nlmsgerr>(answer.payload);
  if (said.error > 0 || said.error < -kMostErrno) return fail(malformed("a verdict"));
  Verdict verdict{-said.error, {}};
  // Behind it comes the rest of the message that it is about, unless that was cut off, and then the
  // details.
  const bool whole = said.error != 0 && (answer.flags & NLM_F_CAPPED) == 0;
  const std::size_t rest =
      whole ? aligned(std::max<std::size_t>(said.msg.nlmsg_len, sizeof(nlmsghdr)))
            : sizeof(nlmsghdr);
  const std::size_t at = sizeof(nlmsgerr) - sizeof(nlmsghdr) + rest;
  if ((answer.flags & NLM_F_ACK_TLVS) == 0) return verdict;
  if (at > answer.payload.size()) return fail(malformed("a verdict"));
  TRY_ASSIGN(const auto details, split_attributes(answer.payload.substr(at)));
  verdict.text = find(details, NLMSGERR_ATTR_MSG);
  while (verdict.text.ends_with('\0')) verdict.text.pop_back();
  return verdict;
}

Result<bool> holds(std::string_view told, std::string_view asked) {
  TRY_ASSIGN(const auto there, split_attributes(told));
  TRY_ASSIGN(const auto wanted, split_attributes(asked));
  for (const Attribute& attribute : wanted) {
    const auto found = std::ranges::find(there, attribute.type, &Attribute::type);
    if (found == there.end()) return false;
    bool same = found->value == attribute.value;
    if (attribute.nested) {
      TRY_ASSIGN(same, holds(found->value, attribute.value));
    }
    if (!same) return false;
  }
  return true;
}

}  // namespace caisson::wall::netlink
