#include "egress/socks5_client.h"

#include <utility>

#include "base/error.h"
#include "base/secret.h"
#include "egress/socks5.h"

namespace caisson::egress {
namespace {

using namespace socks5;  // NOLINT: the protocol's own words

char byte(std::uint8_t value) {
  return static_cast<char>(value);
}

std::uint8_t number(char byte) {
  return static_cast<std::uint8_t>(byte);
}

Error not_socks(std::string what) {
  return Error::invalid("the proxy does not speak SOCKS5: " + std::move(what));
}

Error refusal(Reply reply, const std::string& target) {
  const std::string begin = "the proxy says of " + target + ": ";
  switch (reply) {
    case Reply::kNotAllowed:
      return Error(Code::kPermissionDenied, begin + "not allowed");
    case Reply::kNetworkUnreachable:
      return Error::unavailable(begin + "network unreachable");
    case Reply::kHostUnreachable:
      return Error::unavailable(begin + "host unreachable");
    case Reply::kRefused:
      return Error::unavailable(begin + "connection refused");
    case Reply::kExpired:
      return Error::unavailable(begin + "expired on its way");
    case Reply::kNoSuchCommand:
      return Error(Code::kPermissionDenied, begin + "it makes no connections");
    case Reply::kNoSuchAddress:
      return Error(Code::kPermissionDenied, begin + "it takes no such addresses");
    case Reply::kDone:
    case Reply::kFailure:
      break;
  }
  return Error::unavailable(begin + "failed, by the number " +
                            std::to_string(static_cast<unsigned>(reply)));
}

}  // namespace

Socks5Client::Socks5Client(policy::Host host, std::uint16_t port, std::string username,
                           std::string_view password)
    : host_(std::move(host)), port_(port), username_(std::move(username)), password_(password) {
  out_ = {byte(kVersion), byte(1), byte(kNoLogin)};
  if (username_.empty()) return;
  out_[1] = byte(2);
  out_ += byte(kLogin);
}

Socks5Client::~Socks5Client() {
  wipe(out_);
}

void Socks5Client::sent() {
  wipe(out_);
  out_.clear();
}

void Socks5Client::expect(Step step, std::size_t bytes) {
  step_ = step;
  wanted_ = bytes;
}

Status Socks5Client::take(std::string_view bytes) {
  if (bytes.size() != wanted_) return fail(not_socks("its answer is cut off"));
  switch (step_) {
    case Step::kMethod:
      if (number(bytes[0]) != kVersion) return fail(not_socks("another version"));
      return take_method(number(bytes[1]));
    case Step::kLogin:
      // The version of the login is one; some say that of SOCKS.
      if (number(bytes[0]) != kLoginVersion && number(bytes[0]) != kVersion)
        return fail(not_socks("another version of its login"));
      if (bytes[1] != 0)
        return fail(
            Error(Code::kPermissionDenied, "the proxy does not take the username and password"));
      ask();
      return {};
    case Step::kReply:
      return take_reply(bytes);
    case Step::kBoundName:
      expect(Step::kBound, number(bytes[0]) + kPortBytes);
      return {};
    case Step::kBound:
      expect(Step::kDone, 0);
      return {};
    case Step::kDone:
      break;
  }
  return {};
}

Status Socks5Client::take_method(std::uint8_t method) {
  if (method == kNoLogin) {
    ask();
    return {};
  }
  if (method == kLogin && !username_.empty()) {
    constexpr std::size_t kMost = 255;  // of each
    VERIFY(username_.size() <= kMost && password_.size() <= kMost);
    out_.reserve(3 + username_.size() + password_.size());  // no copy is left where it grew
    out_ += byte(kLoginVersion);
    out_ += byte(static_cast<std::uint8_t>(username_.size()));
    out_ += username_;
    out_ += byte(static_cast<std::uint8_t>(password_.size()));
    out_ += password_;
    expect(Step::kLogin, 2);
    return {};
  }
  if (method != kNoMethod) return fail(not_socks("a login that was not offered"));
  return fail(Error(Code::kPermissionDenied, username_.empty()
                                                 ? "the proxy asks for a username"
                                                 : "the proxy takes no username and password"));
}

void Socks5Client::ask() {
  out_ += {byte(kVersion), byte(kConnect), 0};
  if (host_.is_address()) {
    const auto bytes = host_.address.bytes();
    out_ += byte(host_.address.is_v6() ? kIpv6 : kIpv4);
    for (std::size_t at = 0; at < (host_.address.is_v6() ? kIpv6Bytes : kIpv4Bytes); ++at)
      out_ += byte(bytes[at]);
  } else {
    out_ += byte(kName);
    out_ += byte(static_cast<std::uint8_t>(host_.name.size()));
    out_ += host_.name;
  }
  out_ += byte(static_cast<std::uint8_t>(port_ >> 8));
  out_ += byte(static_cast<std::uint8_t>(port_ & 0xff));
  expect(Step::kReply, 4);
}

Status Socks5Client::take_reply(std::string_view bytes) {
  if (number(bytes[0]) != kVersion) return fail(not_socks("another version"));
  if (bytes[1] != 0)
    return fail(
        refusal(static_cast<Reply>(number(bytes[1])), host_.text() + ":" + std::to_string(port_)));
  switch (number(bytes[3])) {
    case kIpv4:
      expect(Step::kBound, kIpv4Bytes + kPortBytes);
      return {};
    case kIpv6:
      expect(Step::kBound, kIpv6Bytes + kPortBytes);
      return {};
    case kName:
      expect(Step::kBoundName, 1);
      return {};
    default:
      return fail(not_socks("an address of another kind"));
  }
}

}  // namespace caisson::egress
