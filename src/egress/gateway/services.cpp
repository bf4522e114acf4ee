#include "egress/gateway/services.h"

#include <algorithm>
#include <utility>

#include "egress/gateway/look_up.h"

namespace caisson::egress {

void Services::make_room() {
  if (names_.size() < policy::kMaxServices) return;
  const auto now = io::Clock::now();
  std::erase_if(names_, [now](const auto& entry) {
    return !entry.second.asking && entry.second.until <= now;
  });
}

io::Async<Services::Found> Services::find(std::string name, std::chrono::seconds ttl) {
  for (;;) {
    const auto known = names_.find(name);
    if (known == names_.end()) break;
    if (!known->second.asking) {
      if (known->second.until > io::Clock::now())
        co_return Found{.services = known->second.services, .asked = false};
      break;
    }
    co_await one_found_.wait();
  }
  make_room();
  names_.insert_or_assign(name, Known());
  auto result = co_await look_up_services(loop_, name);
  Known& known = names_[name];
  known.asking = false;
  if (result.has_value()) {
    known.services = std::move(*result);
  } else if (result.error().code() == Code::kNotFound) {
    known.services.emplace();
  }
  known.until = io::Clock::now() + (known.services ? ttl : std::min(ttl, kUnknownServices));
  one_found_.notify();
  co_return Found{.services = known.services, .asked = true};
}

}  // namespace caisson::egress
