// When the next builds of a server must wait so that the store has a moment in which nobody builds:
// it lets go of nothing while anybody does.
//
// A moment is due where none came by itself for `busy_for`. What goes on then is waited for, but
// not for ever, since one long step would hold up everybody: after `patience` the next ones begin
// all the same. Each time that happens the next wait may be twice as long, so that in the end the
// moment comes, also where builds are begun again and again so that it does not. Pure; the times
// are its caller's.
#pragma once

#include <algorithm>
#include <chrono>

namespace caisson::api {

class StoreMoment {
 public:
  using Clock = std::chrono::steady_clock;

  StoreMoment(Clock::duration busy_for, Clock::duration patience)
      : busy_for_(busy_for), usual_(patience), patience_(patience) {}

  // A build begins while no other one goes on: there was a moment.
  void had(Clock::time_point now) {
    since_ = now;
    patience_ = usual_;
  }
  // While builds go on: whether the next ones must wait until none does. Called again and again.
  bool is_due(Clock::time_point now) {
    const Clock::duration busy = now - since_;
    if (busy < busy_for_) return false;
    if (busy - busy_for_ < patience_) return true;
    since_ = now;
    patience_ = std::min(2 * patience_, std::max(usual_, kMostPatience));
    return false;
  }
  // How long it is waited for at most.
  Clock::duration patience() const { return patience_; }

 private:
  static constexpr Clock::duration kMostPatience = std::chrono::hours(24);

  Clock::duration busy_for_, usual_, patience_;
  Clock::time_point since_;
};

}  // namespace caisson::api
