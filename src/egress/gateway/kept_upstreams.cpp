#include "egress/gateway/kept_upstreams.h"

#include <utility>

namespace caisson::egress {

void KeptUpstreams::add(io::Loop& loop, const std::shared_ptr<KeptUpstream>& kept) {
  state_->all.push_back(kept);
  if (std::exchange(state_->watched, true)) return;
  loop.spawn(watch(state_));
}

void KeptUpstreams::forget() {
  for (const std::weak_ptr<KeptUpstream>& one : state_->all)
    if (const auto kept = one.lock()) kept->stream.reset();
  state_->all.clear();
}

io::Async<void> KeptUpstreams::watch(std::shared_ptr<State> state) {
  while (!state->all.empty()) {
    co_await io::Loop::sleep(kMostKept / 4);
    const io::Clock::time_point now = io::Clock::now();
    std::erase_if(state->all, [now](const std::weak_ptr<KeptUpstream>& one) {
      const auto kept = one.lock();
      if (kept == nullptr || kept->stream == nullptr) return true;
      if (now - kept->since <= kMostKept) return false;
      kept->stream.reset();
      return true;
    });
  }
  state->watched = false;
}

}  // namespace caisson::egress
