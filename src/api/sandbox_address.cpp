#include "api/sandbox_address.h"

#include <algorithm>
#include <charconv>

#include "policy/complain.h"

namespace caisson::api {
namespace {

constexpr std::size_t kMostId = 64;

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view without_port(std::string_view host) {
  const std::size_t colon = host.rfind(':');
  if (colon == std::string_view::npos || host.ends_with(']')) return host;
  return host.substr(0, colon);
}

// Old clients write an id as "ID-CLIENT".
bool read_id(std::string_view text, std::string& into) {
  text = text.substr(0, text.find('-'));
  if (text.empty() || text.size() > kMostId) return false;
  into.clear();
  for (const char c : text) into += lower(c);  // hosts know no case
  return std::ranges::all_of(into, [](char c) { return is_digit(c) || (c >= 'a' && c <= 'z'); });
}

bool read_port(std::string_view text, std::uint16_t& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  return error == std::errc() && end == text.data() + text.size() && into != 0;
}

// The host's first label where the rest is `domain`; empty: another host.
std::string_view label_below(std::string_view host, std::string_view domain) {
  host = without_port(host);
  domain = without_port(domain);
  if (domain.empty() || host.size() <= domain.size() + 1) return {};
  const std::string_view label = host.substr(0, host.size() - domain.size() - 1);
  const bool below = host[label.size()] == '.' &&
                     std::ranges::equal(host.substr(label.size() + 1), domain, {}, lower, lower);
  return below && label.find('.') == std::string_view::npos ? label : std::string_view();
}

}  // namespace

Result<std::optional<SandboxAddress>> sandbox_address(const http::Headers& headers,
                                                      std::string_view domain) {
  SandboxAddress address;
  const std::string_view label = label_below(headers.get("Host").value_or(""), domain);
  const std::size_t dash = label.find('-');
  // A name such as "my-api" is nobody's port.
  if (dash != std::string_view::npos && is_digit(label[0])) {
    if (!read_port(label.substr(0, dash), address.port) ||
        !read_id(label.substr(dash + 1), address.id)) {
      return fail(policy::wrong("the host", policy::quote(label),
                                "PORT-ID with a port from 1 to 65535 and a sandbox's id"));
    }
    return address;
  }
  const std::optional<std::string_view> id = headers.get("E2b-Sandbox-Id");
  if (!id.has_value()) return std::nullopt;
  if (!read_id(*id, address.id)) {
    return fail(policy::wrong("E2b-Sandbox-Id", policy::quote(*id), "a sandbox's id"));
  }
  const std::optional<std::string_view> port = headers.get("E2b-Sandbox-Port");
  if (port.has_value() && !read_port(*port, address.port)) {
    return fail(policy::wrong("E2b-Sandbox-Port", policy::quote(*port), "a port from 1 to 65535"));
  }
  return address;
}

}  // namespace caisson::api
