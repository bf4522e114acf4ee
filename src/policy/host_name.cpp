#include "policy/host_name.h"

#include <idn2.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>

#include "base/encoding.h"
#include "base/guards.h"
#include "policy/complain.h"

namespace caisson::policy {
namespace {

constexpr std::size_t kMaxName = 253;
constexpr std::size_t kMaxLabel = 63;
// Before IDNA, which makes a name shorter now and then but not this much.
constexpr std::size_t kMaxText = 1024;

constexpr std::string_view kAllowedHost =
    "a name (example.com), an IPv4 address (192.0.2.1) or an IPv6 address in brackets "
    "([2001:db8::1])";
constexpr std::string_view kAllowedAuthority =
    "HOST[:PORT] with a name, an IPv4 address or an IPv6 address in brackets, and a port from 1 to "
    "65535";

// What is read, or what is wrong with the text: part of a sentence.
template <typename T>
using Read = std::expected<T, std::string>;

std::unexpected<std::string> fault(std::string sentence) {
  return std::unexpected<std::string>(std::move(sentence));
}

Error refusal(std::string_view text, std::string_view what, const std::string& fault,
              std::string_view allowed) {
  return Error::invalid(quote(text) + " is no " + std::string(what) + ": " + fault +
                        "; allowed is " + std::string(allowed));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string lowered(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z' && !guard_off(Guard::kCaseFolding))
      c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// What no host in any position may hold: controls and the space, and what parts a URL.
bool is_forbidden(char c) {
  if (guard_off(Guard::kHostBytes)) return false;
  const auto byte = static_cast<unsigned char>(c);
  return byte <= 0x20 || byte == 0x7f ||
         std::string_view("%\\/@#?").find(c) != std::string_view::npos;
}

bool is_of_a_label(char c) {
  if (guard_off(Guard::kHostBytes)) return true;
  if (guard_off(Guard::kCaseFolding) && c >= 'A' && c <= 'Z') return true;
  return (c >= 'a' && c <= 'z') || is_digit(c) || c == '-' || c == '_';
}

// Calls `use` with each label; false where it says so of one.
template <typename Use>
bool every_label(std::string_view name, Use use) {
  for (;;) {
    const std::size_t dot = std::min(name.find('.'), name.size());
    if (!use(name.substr(0, dot))) return false;
    if (dot == name.size()) return true;
    name.remove_prefix(dot + 1);
  }
}

bool has_a_label(std::string_view name) {
  return !every_label(name, [](std::string_view label) { return !label.starts_with("xn--"); });
}

// What is wrong with a name in ASCII and lower case; empty where nothing is.
std::string_view name_fault(std::string_view name) {
  if (name.size() > kMaxName) return "it is longer than 253 characters";
  std::string_view fault;
  every_label(name, [&](std::string_view label) {
    if (label.empty()) fault = "a label of it is empty";
    if (label.size() > kMaxLabel) fault = "a label of it is longer than 63 characters";
    if (!std::all_of(label.begin(), label.end(), is_of_a_label))
      fault = "a label of a name has letters, digits, '-' and '_' alone";
    return fault.empty();
  });
  return fault;
}

// Whether libraries might take the name for an address: its last label is a number.
bool ends_in_a_number(std::string_view name) {
  const std::string_view last = name.substr(name.rfind('.') + 1);
  return std::all_of(last.begin(), last.end(), is_digit) || last.starts_with("0x");
}

// The name by IDNA: labels beyond ASCII become A-labels, and A-labels are checked.
Read<std::string> to_ascii(const std::string& name) {
  std::uint8_t* made = nullptr;
  const int code = ::idn2_lookup_u8(reinterpret_cast<const std::uint8_t*>(name.c_str()), &made,
                                    IDN2_NONTRANSITIONAL | IDN2_NFC_INPUT);
  const std::unique_ptr<std::uint8_t, void (*)(void*)> owned(made, ::idn2_free);
  if (code != IDN2_OK) return fault(std::string("IDNA has: ") + ::idn2_strerror(code));
  return std::string(reinterpret_cast<const char*>(made));
}

Read<std::string> international_name(const std::string& text) {
  if (!is_utf8(text)) return fault("it is not UTF-8");
  auto name = to_ascii(text);
  if (!name) return name;
  if (const std::string_view wrong = name_fault(*name); !wrong.empty())
    return fault("IDNA makes " + quote(*name) + " of it, and " + std::string(wrong));
  // Who spells an address in other characters than its own means to hide it.
  if (ends_in_a_number(*name)) return fault("its last label is a number");
  if (to_ascii(*name) != name) return fault("IDNA makes two names of it");
  return name;
}

Read<Host> read_address(std::string_view text) {
  const auto address = IpAddress::parse(text);
  if (!address) return fault("it is not an address");
  return Host{Host::Kind::kAddress, address->to_string(), *address};
}

Read<Host> read_bracketed(std::string_view text) {
  if (!text.ends_with(']')) return fault("its bracket is not closed");
  auto host = read_address(text.substr(1, text.size() - 2));
  if (!host || text.find(':') == std::string_view::npos)
    return fault("in brackets stands an IPv6 address without a zone");
  return host;
}

// What is wrong with the text before anything is made of it; empty where nothing is.
std::string text_fault(std::string_view text) {
  if (text.empty()) return "it is empty";
  if (text.size() > kMaxText) return "it is longer than 253 characters";
  const auto bad = std::find_if(text.begin(), text.end(), is_forbidden);
  if (bad != text.end()) return "it holds " + quote(std::string_view(bad, 1));
  if (text[0] == '[' || text.find(':') == std::string_view::npos) return "";
  return IpAddress::parse(text) ? "an IPv6 address stands in brackets" : "it holds a colon";
}

Read<Host> read_host(std::string_view text) {
  if (std::string wrong = text_fault(text); !wrong.empty()) return fault(std::move(wrong));
  if (text[0] == '[') return read_bracketed(text);
  std::string name = lowered(text);
  const bool dot = name.ends_with('.');
  if (dot && guard_off(Guard::kTrailingDot)) return Host{Host::Kind::kName, std::move(name), {}};
  if (dot) name.pop_back();
  if (!is_ascii(name) || has_a_label(name)) {
    auto made = international_name(name);
    if (!made) return fault(std::move(made).error());
    return Host{Host::Kind::kName, std::move(*made), {}};
  }
  if (const std::string_view wrong = name_fault(name); !wrong.empty())
    return fault(std::string(wrong));
  if (!ends_in_a_number(name)) return Host{Host::Kind::kName, std::move(name), {}};
  if (dot) return fault("its last label is a number, and an address has no dot at its end");
  auto host = read_address(name);
  if (!host && guard_off(Guard::kIpv4Spelling)) return Host{Host::Kind::kName, std::move(name), {}};
  if (!host)
    return fault("its last label is a number, and it is not four decimal numbers from 0 to 255");
  return host;
}

std::optional<std::uint16_t> read_port(std::string_view text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || text[0] == '0')
    return std::nullopt;
  return port;
}

Read<Authority> read_authority(std::string_view text) {
  // The first colon behind the bracket, where there is one.
  const std::size_t close = text.starts_with('[') ? std::min(text.find(']'), text.size()) : 0;
  const std::size_t colon = text.find(':', close);
  auto host = read_host(text.substr(0, colon));
  if (!host) return fault(std::move(host).error());
  if (colon == std::string_view::npos) return Authority{std::move(*host), std::nullopt};
  const auto port = read_port(text.substr(colon + 1));
  if (!port) return fault(quote(text.substr(colon + 1)) + " is no port");
  return Authority{std::move(*host), port};
}

}  // namespace

std::string Host::text() const {
  return is_address() && address.is_v6() ? "[" + name + "]" : name;
}

Result<Host> canonical_host(std::string_view text) {
  auto host = read_host(text);
  if (!host) return fail(refusal(text, "host", host.error(), kAllowedHost));
  return std::move(*host);
}

bool is_below(const Host& host, const Host& base) {
  return !host.is_address() && !base.is_address() && host.name.size() > base.name.size() + 1 &&
         host.name.ends_with(base.name) &&
         (host.name[host.name.size() - base.name.size() - 1] == '.' ||
          guard_off(Guard::kLabelBoundary));
}

std::string Authority::text() const {
  return host.text() + (port ? ":" + std::to_string(*port) : "");
}

Result<Authority> canonical_authority(std::string_view text) {
  auto authority = read_authority(text);
  if (!authority) return fail(refusal(text, "host", authority.error(), kAllowedAuthority));
  return std::move(*authority);
}

Result<std::uint16_t> parse_port(std::string_view text) {
  const auto port = read_port(text);
  if (!port)
    return fail(Error::invalid(quote(text) +
                               " is no port; allowed is a number from 1 to 65535 in decimal "
                               "digits without a leading zero"));
  return *port;
}

}  // namespace caisson::policy
