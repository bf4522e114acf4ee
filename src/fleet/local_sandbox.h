// One sandbox of a LocalFleet: its record, its connection, and the order in which it ends.
//
// Ending has an order that clients rely on: first ended() is true, so that whoever asks is told
// that there is no such sandbox; then who waits is woken, and cuts what it streams; then what runs
// inside is killed. Belongs to the loop; held by shared_ptr.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fleet/fleet.h"
#include "fleet/host.h"
#include "fleet/process_log.h"
#include "fleet/start_command.h"

namespace caisson::fleet {

class LocalSandbox final : public Served, public std::enable_shared_from_this<LocalSandbox> {
 public:
  using milliseconds = std::chrono::milliseconds;

  LocalSandbox(io::Loop& loop, std::string team, SandboxView view, Made made,
               std::shared_ptr<BoxClient> client);
  ~LocalSandbox() override;

  const SandboxView& view() const override { return view_; }
  const std::string& team() const override { return team_; }
  const std::map<std::string, std::string>& env() const override { return env_; }
  std::string default_user() const override { return made_.user; }
  std::string default_workdir() const override { return made_.workdir; }
  Result<BoxClient*> client() override;
  bool ended() const override { return ended_; }
  io::Async<void> wait_ended() override;
  void note(Event::Level level, std::string message,
            std::map<std::string, std::string> fields = {}) override;
  void note_start(std::uint32_t command, std::map<std::string, std::string> fields) override;
  void note_end(std::uint32_t command, const Outcome& outcome) override;
  // What an earlier server has noted, the oldest first: the ends that are missing will be.
  void restore_log(const std::vector<Event>& log);

  void set_env(std::map<std::string, std::string> env) { env_ = std::move(env); }
  // Runs after each boot anew, before a client has the sandbox again.
  void set_start(StartCommand start) { start_ = std::move(start); }
  const std::string& host_id() const { return made_.id; }
  // Calls it, once, when the sandbox has ended by whatever means.
  void on_end(std::function<void(LocalSandbox&)> handler) { on_end_ = std::move(handler); }

  // Gets what is noted.
  void on_note(std::function<void(const LocalSandbox&, Event)> handler) {
    on_note_ = std::move(handler);
  }

  // Writes the view down: called, and waited for, before what is to be paused loses its memory. A
  // server that comes afterwards is told that it is paused, but not what was kept.
  void on_files_alone(std::function<io::Async<void>()> writer) {
    on_files_alone_ = std::move(writer);
  }

  // All of these change the view when the supervisor has done it. One at a time: who comes
  // meanwhile waits.
  io::Async<Status> set_end(WallClock::time_point end, Fleet::Timeout how = Fleet::Timeout::kSet);
  // kIfDue: it may have got more time before its turn came. False: that was so, and it runs.
  enum class Pause : std::uint8_t { kNow, kIfDue };
  // A boot anew (of kFiles, or of kReboot) that takes longer than `reboot_time` ends the sandbox;
  // error: deadline_exceeded.
  io::Async<Result<bool>> freeze(Keep keep, Pause when, milliseconds reboot_time);
  // `time`: how long it lives then. One that boots anew has run its start command and is ready;
  // where that fails it stays paused, with its files. Errors: also those of start_and_wait().
  io::Async<Status> thaw(std::chrono::seconds time, Resume how, milliseconds reboot_time);
  // While whoever has this holds it, nothing else that changes the sandbox begins.
  io::Async<std::shared_ptr<void>> hold();
  // What its gateway is told (vault/vault.h), also of a paused one; `fields` is the view's then.
  // Whoever calls holds it. Errors: those of apply_network().
  io::Async<Status> set_network(std::string network, std::string fields);
  // Runs `work` (on the loop's pool) while nobody changes the sandbox's state. Error:
  // failed_precondition where it is paused.
  io::Async<Result<std::string>> with_state_kept(std::function<Result<std::string>()> work);
  // Ends it; true for the call that did.
  bool kill();
  // Whether its end was asked for here: one that only lost its connection may still run.
  bool killed() const { return killed_; }
  // Waits until nothing of it runs any more, at most so long.
  io::Async<bool> wait_removed(io::Clock::duration time);

  // Takes a sample; errors are left out.
  io::Async<void> sample();
  const std::deque<Sample>& samples() const { return samples_; }
  // What it was asked to do at its deadline is done by the fleet's clock.
  bool due(WallClock::time_point now) const;
  bool busy() const { return busy_; }
  // Until nobody changes its state; what is then seen of it is true until the loop's next turn.
  io::Async<void> wait_settled();

 private:
  class Turn;
  io::Async<void> take_turn();
  // Notes the ends that nobody has; `ended` is how many commands have, where that is known.
  io::Async<void> look_for_ends(std::optional<std::uint64_t> ended);
  void put_into_log(std::optional<Event> event);
  io::Async<Status> start_again(milliseconds reboot_time);
  io::Async<Status> set_deadline(WallClock::time_point end);
  io::Async<Status> boot_anew(State then, milliseconds time);
  // boot_anew(), paused.
  io::Async<Status> keep_files_alone(milliseconds time);
  void end();

  io::Loop& loop_;
  std::string team_;
  SandboxView view_;
  Made made_;
  std::map<std::string, std::string> env_;
  std::shared_ptr<BoxClient> client_;
  std::function<void(LocalSandbox&)> on_end_;
  std::function<void(const LocalSandbox&, Event)> on_note_;
  std::function<io::Async<void>()> on_files_alone_;
  std::deque<Sample> samples_;
  ProcessLog processes_;
  StartCommand start_;
  std::optional<std::uint64_t> ended_seen_;
  bool look_again_ = false;  // whatever has been seen: a process was noted since
  std::optional<std::uint64_t> last_cpu_micros_;
  io::Clock::time_point last_sample_;
  io::Event end_event_, turn_event_;
  bool ended_ = false;
  bool busy_ = false, sampling_ = false;
  bool killed_ = false;
};

}  // namespace caisson::fleet
