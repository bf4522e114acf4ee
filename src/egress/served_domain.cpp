#include "egress/served_domain.h"

#include <algorithm>

#include "base/json.h"

namespace caisson::egress {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// PORT-ID, and what old clients write behind an id.
bool is_sandbox_label(std::string_view label) {
  const std::size_t dash = label.find('-');
  return dash != std::string_view::npos && dash > 0 && dash <= 5 && dash + 1 < label.size() &&
         std::ranges::all_of(label.substr(0, dash), is_digit);
}

}  // namespace

bool ServedDomain::has(const policy::Host& host, std::uint16_t to) const {
  if (domain.empty() || host.is_address() || to != port) return false;
  const std::string_view name = host.name;
  if (name.size() <= domain.size() + 1 || !name.ends_with(domain)) return false;
  const std::string_view label = name.substr(0, name.size() - domain.size() - 1);
  return name[label.size()] == '.' && label.find('.') == std::string_view::npos &&
         is_sandbox_label(label);
}

std::string encode(const ServedDomain& served) {
  json::Value value = json::Value::object();
  value.set("domain", served.domain)
      .set("port", static_cast<std::int64_t>(served.port))
      .set("address", served.address)
      .set("authority", served.authority);
  return json::serialize(value);
}

Result<ServedDomain> parse_served_domain(std::string_view text) {
  TRY_ASSIGN(const json::Value value, json::parse(text));
  const auto text_of = [&](std::string_view key) -> Result<std::string> {
    const json::Value* found = value.find(key);
    if (found == nullptr || found->as_string() == nullptr)
      return fail(Error::invalid("a served domain without its " + std::string(key)));
    return *found->as_string();
  };
  ServedDomain served;
  TRY_ASSIGN(served.domain, text_of("domain"));
  TRY_ASSIGN(served.address, text_of("address"));
  TRY_ASSIGN(served.authority, text_of("authority"));
  const json::Value* port = value.find("port");
  const std::int64_t* number = port == nullptr ? nullptr : port->as_integer();
  if (number == nullptr || *number < 1 || *number > 65535)
    return fail(Error::invalid("a served domain without its port"));
  served.port = static_cast<std::uint16_t>(*number);
  TRY_ASSIGN(const policy::Host host, policy::canonical_host(served.domain));
  if (host.is_address() || host.name != served.domain)
    return fail(Error::invalid("a served domain that is no canonical name"));
  return served;
}

}  // namespace caisson::egress
