// For tests: a Fleet whose sandboxes are records and nothing else.
//
// It keeps the promises of fleet.h as far as they show in views and errors; a test may put a
// failure in place of any call's work.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fleet/fleet.h"
#include "fleet/process_log.h"

namespace caisson::api {

class FakeServed final : public fleet::Served {
 public:
  FakeServed(std::string team, fleet::SandboxView view)
      : view_now(std::move(view)), team_(std::move(team)) {}

  fleet::SandboxView view_now;
  std::map<std::string, std::string> variables;
  std::string user = "user", workdir;
  fleet::BoxClient* box = nullptr;
  bool has_ended = false;
  std::vector<fleet::Event> noted;
  fleet::ProcessLog processes;

  const fleet::SandboxView& view() const override { return view_now; }
  const std::string& team() const override { return team_; }
  const std::map<std::string, std::string>& env() const override { return variables; }
  std::string default_user() const override { return user; }
  std::string default_workdir() const override { return workdir; }
  Result<fleet::BoxClient*> client() override {
    if (box == nullptr) return fail(Error::unavailable("the sandbox has no connection"));
    return box;
  }
  bool ended() const override { return has_ended; }
  io::Async<void> wait_ended() override {
    while (!has_ended) co_await io::Loop::sleep(std::chrono::milliseconds(1));
  }
  void note(fleet::Event::Level level, std::string message,
            std::map<std::string, std::string> fields) override {
    noted.push_back({fleet::WallClock::time_point(), level, std::move(message), std::move(fields)});
  }
  void note_start(std::uint32_t command, std::map<std::string, std::string> fields) override {
    noted.push_back(processes.started(command, std::move(fields)));
  }
  void note_end(std::uint32_t command, const Outcome& outcome) override {
    auto event = processes.ended(command, fleet::WallClock::time_point(), outcome);
    if (event.has_value()) noted.push_back(std::move(*event));
  }

 private:
  std::string team_;
};

class FakeFleet final : public fleet::Fleet {
 public:
  // The time of every record that create() makes: 2026-01-02T03:04:05.678Z.
  static fleet::WallClock::time_point start() {
    return fleet::WallClock::time_point(std::chrono::milliseconds(1767323045678));
  }

  std::map<std::string, std::shared_ptr<FakeServed>> sandboxes;
  std::vector<std::string> templates = {"base"};
  fleet::NewSandbox wanted;           // of the last create()
  fleet::ListQuery query;             // of the last list()
  fleet::EventQuery event_query;      // of the last events()
  std::string next_token;             // of the next list()
  std::optional<Error> failure;       // of the next call that may fail
  std::optional<Error> fork_failure;  // of a fork's last one
  std::chrono::seconds timeout{-1};   // of the last set_timeout() or connect()
  policy::NetworkPolicy network_now;  // of the last set_network()
  std::vector<vault::GivenSecret> secrets_now;
  std::vector<std::string> renewed;  // TEAM/NAME
  Timeout timeout_how = Timeout::kSet;
  fleet::Keep keep = fleet::Keep::kMemory;             // of the last pause()
  fleet::Resume resume = fleet::Resume::kWhatWasKept;  // of the last connect()
  std::vector<fleet::Sample> samples_now;
  std::optional<fleet::WallClock::time_point> samples_from, samples_to;

  // A running sandbox "iNAME" of the team.
  FakeServed& add(const std::string& id, const std::string& team = "team-1") {
    fleet::SandboxView view;
    view.id = id;
    view.template_id = "base";
    view.alias = "base";
    view.started = start();
    view.end = start() + std::chrono::seconds(300);
    view.memory_mib = 512;
    view.has_network = true;
    view.disk_mib = 1024;
    view.access_token = "token-of-" + id;
    auto served = std::make_shared<FakeServed>(team, std::move(view));
    sandboxes[id] = served;
    return *served;
  }

  io::Async<Result<std::shared_ptr<fleet::Served>>> create(std::string team,
                                                           fleet::NewSandbox new_sandbox) override {
    wanted = new_sandbox;
    CO_TRY(fault());
    if (std::ranges::find(templates, new_sandbox.template_name) == templates.end()) {
      co_return fail(Error::not_found("template '" + new_sandbox.template_name + "' not found"));
    }
    const std::string id = "i" + std::to_string(sandboxes.size() + 1);
    FakeServed& served = add(id, team);
    fleet::SandboxView& view = served.view_now;
    view.template_id = view.alias = new_sandbox.template_name;
    view.end = start() + new_sandbox.timeout.value_or(std::chrono::seconds(300));
    view.metadata = new_sandbox.metadata;
    view.on_timeout = new_sandbox.on_timeout;
    view.auto_resume = new_sandbox.auto_resume;
    view.public_traffic = new_sandbox.public_traffic;
    view.mask_request_host = new_sandbox.mask_request_host;
    if (!new_sandbox.secure) view.access_token.clear();
    if (!new_sandbox.public_traffic) view.traffic_token = "traffic-of-" + id;
    co_return std::shared_ptr<fleet::Served>(sandboxes[id]);
  }
  std::shared_ptr<fleet::Served> find(std::string_view team, std::string_view id) override {
    const auto found = sandboxes.find(std::string(id));
    return found != sandboxes.end() && found->second->team() == team ? found->second : nullptr;
  }
  std::shared_ptr<fleet::Served> find_any(std::string_view id) override {
    const auto found = sandboxes.find(std::string(id));
    return found != sandboxes.end() ? found->second : nullptr;
  }
  std::vector<std::shared_ptr<fleet::Served>> all_running() override {
    std::vector<std::shared_ptr<fleet::Served>> running;
    for (const auto& [id, served] : sandboxes) {
      if (served->view().state == fleet::State::kRunning) running.push_back(served);
    }
    return running;
  }
  Result<fleet::ListPage> list(std::string_view team, const fleet::ListQuery& asked) override {
    query = asked;
    TRY(fault());
    fleet::ListPage page;
    for (const auto& [id, served] : sandboxes) {
      if (served->team() != team) continue;
      const bool running = served->view().state == fleet::State::kRunning;
      page.running += running ? 1 : 0;
      if (running ? asked.running : asked.paused) page.sandboxes.push_back(served->view());
    }
    page.next_token = std::exchange(next_token, "");
    return page;
  }
  io::Async<Status> kill(std::string team, std::string id) override {
    CO_TRY(there(team, id));
    CO_TRY(fault());
    sandboxes[id]->has_ended = true;
    sandboxes.erase(id);
    co_return Status();
  }
  io::Async<Status> set_network(std::string team, std::string id, policy::NetworkPolicy network,
                                std::string fields,
                                std::vector<vault::GivenSecret> secrets) override {
    CO_TRY(there(team, id));
    CO_TRY(fault());
    network_now = std::move(network);
    secrets_now = std::move(secrets);
    sandboxes[id]->view_now.network = std::move(fields);
    co_return Status();
  }
  io::Async<Status> renew_secret(std::string team, std::string name) override {
    renewed.push_back(team + "/" + name);
    CO_TRY(fault());
    co_return Status();
  }
  io::Async<Status> set_timeout(std::string team, std::string id, std::chrono::seconds from_now,
                                Timeout how) override {
    CO_TRY(there(team, id));
    CO_TRY(fault());
    if (sandboxes[id]->view_now.state == fleet::State::kPaused) {
      co_return fail(Error::precondition("sandbox " + id + " is paused"));
    }
    timeout = from_now;
    timeout_how = how;
    co_return Status();
  }
  io::Async<Status> pause(std::string team, std::string id, fleet::Keep what) override {
    CO_TRY(there(team, id));
    CO_TRY(fault());
    if (sandboxes[id]->view_now.state == fleet::State::kPaused) {
      co_return fail(Error::precondition("sandbox " + id + " is paused already"));
    }
    keep = what;
    sandboxes[id]->view_now.state = fleet::State::kPaused;
    co_return Status();
  }
  io::Async<Result<bool>> connect(std::string team, std::string id, std::chrono::seconds from_now,
                                  fleet::Resume how) override {
    CO_TRY(there(team, id));
    CO_TRY(fault());
    timeout = from_now;
    resume = how;
    fleet::SandboxView& view = sandboxes[id]->view_now;
    co_return std::exchange(view.state, fleet::State::kRunning) == fleet::State::kPaused;
  }
  io::Async<Result<fleet::Snapshot>> snapshot(std::string team, std::string id) override {
    CO_TRY(there(team, id));
    CO_TRY(fault());
    co_return fleet::Snapshot{
        .image = "sha256:of-" + id, .cpu_milli = 1000, .memory = 1, .disk = 2};
  }
  io::Async<Result<std::vector<Result<std::shared_ptr<fleet::Served>>>>> fork(
      std::string team, std::string id, std::chrono::seconds from_now, std::size_t count) override {
    CO_TRY(there(team, id));
    CO_TRY(fault());
    timeout = from_now;
    std::vector<Result<std::shared_ptr<fleet::Served>>> forks;
    for (std::size_t at = 0; at < count; ++at) {
      if (fork_failure.has_value() && at + 1 == count) {
        forks.push_back(fail(*fork_failure));
        continue;
      }
      const std::string fork_id = id + "f" + std::to_string(at);
      add(fork_id, team);
      forks.push_back(std::shared_ptr<fleet::Served>(sandboxes[fork_id]));
    }
    co_return forks;
  }
  io::Async<bool> resume_for_traffic(std::shared_ptr<fleet::Served> sandbox) override {
    if (!sandbox->view().auto_resume) co_return false;
    sandboxes[sandbox->view().id]->view_now.state = fleet::State::kRunning;
    co_return true;
  }
  Result<std::vector<fleet::Sample>> samples(
      std::string_view team, std::string_view id, std::optional<fleet::WallClock::time_point> from,
      std::optional<fleet::WallClock::time_point> to) override {
    TRY(there(team, id));
    TRY(fault());
    samples_from = from;
    samples_to = to;
    return samples_now;
  }
  io::Async<Result<std::vector<fleet::Event>>> events(std::string team, std::string id,
                                                      fleet::EventQuery asked) override {
    CO_TRY(there(team, id));
    CO_TRY(fault());
    event_query = std::move(asked);
    co_return sandboxes[id]->noted;
  }
  fleet::Counts counts() const override {
    fleet::Counts counts;
    for (const auto& [id, served] : sandboxes) {
      ++(served->view().state == fleet::State::kRunning ? counts.running : counts.paused);
    }
    return counts;
  }

 private:
  Status there(std::string_view team, std::string_view id) {
    if (find(team, id) != nullptr) return {};
    return fail(Error::not_found("sandbox " + std::string(id) + " not found"));
  }
  Status fault() {
    if (!failure.has_value()) return {};
    Error error = std::move(*failure);
    failure.reset();
    return fail(std::move(error));
  }
};

}  // namespace caisson::api
