// What names a host, in its one spelling: for entries of a policy, names in DNS questions, SNI, the
// Host and :authority of a request, the target of CONNECT, and SOCKS.
//
// One function for all of them, because a name that one part reads otherwise than the next is how
// filters are gone round. Nothing is repaired beyond letter case, one trailing dot and what IDNA
// (UTS 46, non-transitional, by libidn2) maps; what could be read in two ways is refused. What a
// caller judges, resolves and sends is the canonical text and never what came. Pure, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "policy/ip_address.h"

namespace caisson::policy {

struct Host {
  enum class Kind : std::uint8_t { kName, kAddress };
  Kind kind = Kind::kName;
  // A name: A-labels of [a-z0-9_-] joined by dots, no dot at the end, at most 253 bytes. An
  // address: its canonical text without brackets.
  std::string name;
  IpAddress address;  // of kAddress alone

  bool is_address() const { return kind == Kind::kAddress; }
  // As it stands in a URL, a Host header and canonical_host(): an IPv6 address in brackets.
  std::string text() const;
  bool operator==(const Host&) const = default;
};

// A name in ASCII or UTF-8, an IPv4 address of four decimal numbers, or an IPv6 address in brackets
// without a zone. A name whose last label is a number (or begins with 0x) is none: libraries take
// "127.1", "0x7f.1" or "2130706433" for addresses. Error: invalid_argument, with what is wrong and
// what is allowed.
Result<Host> canonical_host(std::string_view text);

// Whether `host` is a name at least one label below the name `base`.
bool is_below(const Host& host, const Host& base);

struct Authority {
  Host host;
  std::optional<std::uint16_t> port;
  // HOST or HOST:PORT; canonical_authority() takes it back.
  std::string text() const;
  bool operator==(const Authority&) const = default;
};

// HOST or HOST:PORT, without a user name. Error: invalid_argument.
Result<Authority> canonical_authority(std::string_view text);

// 1 to 65535 in decimal digits alone, without a leading zero. Error: invalid_argument.
Result<std::uint16_t> parse_port(std::string_view text);

// An entry of a policy: one host, `*.NAME` for every name at least one label below NAME, or
// `**.NAME` for NAME as well.
class HostPattern {
 public:
  // Error: invalid_argument, for what is no host, a `*` elsewhere than as the whole first label, an
  // address below `*`, and a wildcard on a registry's public suffix ("com", "co.uk"), below which
  // anybody can have a name: one of the list that libpsl was built with, or a last label that the
  // list does not know.
  static Result<HostPattern> parse(std::string_view text);

  bool matches(const Host& host) const;
  // Whether it is one address.
  bool is_address() const { return host_.is_address(); }
  // Whether it is one host, name or address.
  bool is_exact() const { return scope_ == Scope::kExact; }
  // The host itself, or the name after the wildcard.
  const Host& host() const { return host_; }
  // The canonical entry; parse() takes it back.
  std::string text() const;
  bool operator==(const HostPattern&) const = default;

 private:
  enum class Scope : std::uint8_t { kExact, kBelow, kBelowAndItself };
  HostPattern(Scope scope, Host host) : scope_(scope), host_(std::move(host)) {}
  Scope scope_;
  Host host_;
};

}  // namespace caisson::policy
