#include "egress/allow_list.h"

#include <algorithm>
#include <string_view>

#include "policy/complain.h"
#include "policy/ip_class.h"

namespace caisson::egress {

bool is_localhost(const policy::Host& host) {
  return host.name == "localhost";
}

Result<AllowList::Entry> AllowList::parse_entry(const std::string& text) {
  std::string_view rest = text;
  const bool below = rest.starts_with("*.");
  if (below) rest.remove_prefix(2);
  auto authority = policy::canonical_authority(rest);
  if (!authority && below)
    return fail(std::move(authority).error().with("behind the wildcard of " + policy::quote(text)));
  if (!authority) return fail(std::move(authority).error());
  const bool literal = authority->host.is_address() || is_localhost(authority->host);
  if (below && literal)
    return fail(Error::invalid(policy::quote(text) + ": there are no names below that"));
  return Entry{.host = std::move(authority->host),
               .below = below,
               .literal = literal,
               .port = authority->port.value_or(0)};
}

Result<AllowList> AllowList::parse(std::span<const std::string> entries) {
  AllowList list;
  for (const std::string& text : entries) {
    TRY_ASSIGN(Entry entry, parse_entry(text));
    list.entries_.push_back(std::move(entry));
  }
  return list;
}

AllowList::Answer AllowList::allows(const Destination& destination) const {
  const auto& [host, port] = destination;
  for (const Entry& entry : entries_) {
    if (entry.port == 0 ? port != 80 && port != 443 : port != entry.port) continue;
    if (entry.below ? policy::is_below(host, entry.host) : host == entry.host)
      return entry.literal ? Answer::kAnyAddress : Answer::kPublic;
  }
  return Answer::kNo;
}

bool AllowList::names_loopback() const {
  return std::any_of(entries_.begin(), entries_.end(), [](const Entry& entry) {
    return is_localhost(entry.host) ||
           (entry.host.is_address() &&
            policy::classify(entry.host.address) == policy::IpClass::kLoopback);
  });
}

}  // namespace caisson::egress
