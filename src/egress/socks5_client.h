// The client's side of SOCKS5 (RFC 1928) up to a connection, with a user name where the proxy asks
// for one (RFC 1929): what is to be sent next, and what the proxy's bytes mean. Pure.
//
// What the proxy says is hostile input. Each step says how many bytes it wants, none of which are
// the connection's own: a server that speaks first loses nothing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "policy/host_name.h"

namespace caisson::egress {

class Socks5Client {
 public:
  // What it wants at most at once.
  static constexpr std::size_t kMostWanted = 255 + 2;

  // To `host`, a name or an address. `username`: empty where there is none; neither it nor
  // `password` is longer than 255 bytes. The password is copied once, when it is sent.
  Socks5Client(policy::Host host, std::uint16_t port, std::string username,
               std::string_view password);
  ~Socks5Client();
  Socks5Client(const Socks5Client&) = delete;
  Socks5Client& operator=(const Socks5Client&) = delete;

  // To be written before anything is read; empty: nothing. sent() overwrites it.
  std::string_view to_send() const { return out_; }
  void sent();
  // How many bytes are to be read next, and taken together; 0: the connection stands.
  std::size_t wanted() const { return wanted_; }
  // Errors: unavailable (the proxy cannot reach the address), permission_denied (it does not let
  // us), invalid_argument (it says what is no SOCKS5). Nothing is to be sent or taken after one.
  Status take(std::string_view bytes);

 private:
  enum class Step : std::uint8_t { kMethod, kLogin, kReply, kBoundName, kBound, kDone };
  void expect(Step step, std::size_t bytes);
  Status take_method(std::uint8_t method);
  Status take_reply(std::string_view bytes);
  void ask();

  const policy::Host host_;
  const std::uint16_t port_;
  const std::string username_;
  const std::string_view password_;
  std::string out_;
  Step step_ = Step::kMethod;
  std::size_t wanted_ = 2;
};

}  // namespace caisson::egress
