#include "egress/gateway/known_addresses.h"

#include <algorithm>
#include <utility>

namespace caisson::egress {

std::optional<std::vector<policy::IpAddress>> KnownAddresses::find(
    const std::string& name, io::Clock::time_point now) const {
  const auto found = names_.find(name);
  if (found == names_.end() || found->second.until <= now) return std::nullopt;
  return found->second.addresses;
}

void KnownAddresses::keep(const std::string& name, std::vector<policy::IpAddress> addresses,
                          std::chrono::seconds holds, io::Clock::time_point now) {
  if (holds <= std::chrono::seconds::zero() || addresses.empty()) return forget(name);
  if (!names_.contains(name)) make_room(now);
  names_.insert_or_assign(name, Known{.addresses = std::move(addresses),
                                      .until = now + std::min(holds, kLongestKnown)});
}

void KnownAddresses::forget(const std::string& name) {
  names_.erase(name);
}

void KnownAddresses::make_room(io::Clock::time_point now) {
  if (names_.size() < kMostKnown) return;
  std::erase_if(names_, [now](const auto& entry) { return entry.second.until <= now; });
  if (names_.size() < kMostKnown) return;
  names_.erase(
      std::ranges::min_element(names_, {}, [](const auto& entry) { return entry.second.until; }));
}

}  // namespace caisson::egress
