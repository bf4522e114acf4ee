#include "image/registry/url.h"

#include <algorithm>
#include <charconv>

#include "image/reference.h"

namespace caisson::image {
namespace {

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_host(std::string_view host) {
  if (host.empty() || host.size() > 253) return false;
  if (host.front() == '[') {
    return host.size() > 4 && host.back() == ']' &&
           std::ranges::all_of(host.substr(1, host.size() - 2), [](char c) {
             return is_digit(c) || (c >= 'a' && c <= 'f') || c == ':' || c == '.';
           });
  }
  return host.front() != '-' && host.front() != '.' && std::ranges::all_of(host, [](char c) {
           return (c >= 'a' && c <= 'z') || is_digit(c) || c == '-' || c == '.' || c == '_';
         });
}

// Printable ASCII without space, quotes and what no URL holds.
bool is_target(std::string_view target) {
  return std::ranges::all_of(target, [](char c) {
    return c > 0x20 && c < 0x7f && c != '"' && c != '<' && c != '>' && c != '\\' && c != '^' &&
           c != '`';
  });
}

Error bad_url(std::string_view text, std::string_view what) {
  // The query may hold a signature.
  return Error::invalid("URL '" + printable(text.substr(0, text.find('?')), 120) +
                        "': " + std::string(what));
}

}  // namespace

std::string Url::authority() const {
  const std::uint16_t own = secure ? 443 : 80;
  return port == own ? host : host + ":" + std::to_string(port);
}

std::string Url::text() const {
  return (secure ? "https://" : "http://") + authority() + target;
}

std::string Url::shown() const {
  const std::string all = text();
  return printable(std::string_view(all).substr(0, all.find('?')));
}

Result<Url> parse_url(std::string_view text) {
  constexpr std::string_view kAllowed = "allowed is http or https with a host, in printable ASCII";
  if (text.size() > kMaxUrlSize) return fail(bad_url(text, "it is too long"));
  const std::size_t colon = text.find("://");
  if (colon == std::string_view::npos) return fail(bad_url(text, kAllowed));
  std::string scheme(text.substr(0, colon));
  std::ranges::transform(scheme, scheme.begin(), lower);
  if (scheme != "https" && scheme != "http") return fail(bad_url(text, kAllowed));
  Url url;
  url.secure = scheme == "https";
  url.port = url.secure ? 443 : 80;
  std::string_view rest = text.substr(colon + 3);
  const std::size_t end = rest.find_first_of("/?#");
  std::string_view authority = rest.substr(0, end);
  rest = end == std::string_view::npos ? std::string_view() : rest.substr(end);
  if (authority.find('@') != std::string_view::npos) {
    return fail(
        bad_url(authority.substr(authority.find('@')), "a user's name in it is not allowed"));
  }
  const std::size_t bracket = authority.find(']');
  const std::size_t port_at =
      authority.find(':', bracket == std::string_view::npos ? 0 : bracket + 1);
  if (port_at != std::string_view::npos) {
    const std::string_view digits = authority.substr(port_at + 1);
    auto [last, error] = std::from_chars(digits.data(), digits.data() + digits.size(), url.port);
    if (error != std::errc() || last != digits.data() + digits.size() || url.port == 0) {
      return fail(bad_url(text, "its port is no number from 1 to 65535"));
    }
  }
  url.host = authority.substr(0, port_at);
  std::ranges::transform(url.host, url.host.begin(), lower);
  if (!is_host(url.host)) return fail(bad_url(text, kAllowed));
  std::string_view target = rest.substr(0, rest.find('#'));
  if (!is_target(target)) return fail(bad_url(text, kAllowed));
  url.target =
      target.empty() || target.front() == '?' ? "/" + std::string(target) : std::string(target);
  return url;
}

Result<Url> resolve_url(const Url& base, std::string_view location) {
  const std::size_t scheme = location.find("://");
  const std::size_t special = location.find_first_of("/?#");
  if (scheme != std::string_view::npos && (special == std::string_view::npos || scheme < special)) {
    return parse_url(location);
  }
  const std::string prefix = base.secure ? "https:" : "http:";
  if (location.starts_with("//")) return parse_url(prefix + std::string(location));
  std::string target;
  if (location.starts_with("/")) {
    target = location;
  } else {
    // Below the base's last '/'.
    const std::string_view path = std::string_view(base.target).substr(0, base.target.find('?'));
    target = std::string(path.substr(0, path.rfind('/') + 1)) + std::string(location);
  }
  return parse_url(prefix + "//" + base.authority() + target);
}

bool is_loopback_host(std::string_view host) {
  if (host == "localhost" || host.ends_with(".localhost") || host == "[::1]") return true;
  if (!host.starts_with("127.")) return false;
  // A name such as 127.example.com is no address.
  return std::ranges::count(host, '.') == 3 &&
         std::ranges::all_of(host, [](char c) { return is_digit(c) || c == '.'; });
}

std::string percent_encode(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string out;
  for (char c : text) {
    if ((lower(c) >= 'a' && lower(c) <= 'z') || is_digit(c) || c == '-' || c == '.' || c == '_' ||
        c == '~') {
      out += c;
    } else {
      out += '%';
      out += kDigits[(static_cast<unsigned char>(c) >> 4) & 15];
      out += kDigits[static_cast<unsigned char>(c) & 15];
    }
  }
  return out;
}

}  // namespace caisson::image
