// For tests of the fleet of this host: one on a loop, with a host and records that the test plays.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fleet/fake_host_for_test.h"
#include "fleet/local_fleet.h"

namespace caisson::fleet {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Survives the fleet, as a database does.
using Kept = std::map<std::string, Record>;

class MemoryRecords final : public Records {
 public:
  MemoryRecords(Kept& kept, std::vector<Noted>& events) : kept_(kept), events_(events) {}
  Status check(const Record& record) const override {
    if (!record.view.metadata.contains("bad")) return {};
    return fail(Error::invalid("metadata: found bad"));
  }
  io::Async<Status> put(Record record) override {
    if (full_disk) co_return fail(Error::exhausted("the database's disk is full"));
    std::string id = record.view.id;
    kept_.insert_or_assign(std::move(id), std::move(record));
    co_return Status{};
  }
  io::Async<Status> remove(std::string id) override {
    kept_.erase(id);
    co_return Status{};
  }
  io::Async<Result<AllRecords>> all() override {
    AllRecords all;
    for (const auto& [id, record] : kept_) {
      if (damaged.contains(id)) {
        all.damaged.push_back(
            {.team = record.team, .id = id, .host_id = record.host_id, .why = "it is damaged"});
      } else {
        all.records.push_back(record);
      }
    }
    co_return all;
  }
  io::Async<Status> add_events(std::vector<Noted> events) override {
    if (full_disk) co_return fail(Error::exhausted("the database's disk is full"));
    for (Noted& one : events) events_.push_back(std::move(one));
    co_return Status{};
  }
  io::Async<Result<std::vector<Event>>> events(std::string team, std::string id,
                                               EventQuery query) override {
    if (hold_events != nullptr) {
      ++events_held;
      while (hold_events != nullptr && *hold_events) co_await io::Loop::sleep(milliseconds(1));
    }
    std::vector<Event> found;
    for (const Noted& one : events_) {
      if (one.team == team && one.sandbox == id && one.event.message.contains(query.text))
        found.push_back(one.event);
    }
    if (found.empty()) co_return fail(Error::not_found("no sandbox " + id));
    if (query.order == EventQuery::Order::kNewestFirst) std::ranges::reverse(found);
    co_return found;
  }
  static inline bool full_disk = false;
  static inline std::set<std::string> damaged;  // ids
  // While it is set and says so, questions for events wait, which are counted.
  static inline const bool* hold_events = nullptr;
  static inline std::size_t events_held = 0;

 private:
  Kept& kept_;
  std::vector<Noted>& events_;
};

inline io::Loop* current_loop = nullptr;

class LocalFleetTest : public testing::Test {
 public:
  // Runs a body on a loop with a fleet of this host and these records.
  template <typename Body>
  void with_fleet(Body body) {
    io::Loop loop(2);
    current_loop = &loop;
    auto task = [](io::Loop& on, LocalFleetTest& test, Body& run) -> io::Async<void> {
      {
        LocalFleet fleet(on, test.host_, test.options(),
                         std::make_unique<MemoryRecords>(test.kept_, test.events_));
        co_await run(fleet, test);
      }
      on.stop();
    };
    loop.spawn(task(loop, *this, body));
    loop.run();
  }

  FleetOptions options() {
    FleetOptions options;
    options.pool = pool_;
    options.made_network = made_network_;
    options.vault = vault_;
    options.inspect_later = inspect_later_;
    options.kept_values = [this](std::string, std::vector<std::string> names)
        -> io::Async<Result<std::vector<vault::GivenSecret>>> {
      while (hold_kept_) co_await io::Loop::sleep(milliseconds(1));
      std::vector<vault::GivenSecret> values;
      for (const std::string& name : names) {
        const auto found = kept_secrets_.find(name);
        if (found != kept_secrets_.end())
          values.push_back(
              {.name = name, .value = std::make_shared<const SecretValue>(found->second)});
      }
      co_return values;
    };
    options.find_template = [this](std::string, std::string name) -> io::Async<Result<Template>> {
      if (name != "base") co_return fail(Error::not_found("template '" + name + "' not found"));
      co_return Template{.id = "base-id",
                         .alias = "base",
                         .recipe = {.image = "user"},
                         .limits = limits_,
                         .env = {{"A", "template"}, {"B", "template"}},
                         .start = start_};
    };
    options.quota = [this](std::string team) -> io::Async<Result<Quota>> {
      if (team == "nobody") co_return fail(Error::not_found("no team \"nobody\""));
      co_await io::Loop::sleep({});  // as a database answers: later
      if (hold_quota_ == Hold::kNext) {
        hold_quota_ = Hold::kHolds;
        while (hold_quota_ == Hold::kHolds) co_await io::Loop::sleep(milliseconds(1));
        hold_quota_ = Hold::kAnswered;
      }
      co_return quota_;
    };
    options.most_running = most_running_;
    options.most_paused = most_paused_;
    options.building = [this](std::optional<std::string_view> team) {
      return !team.has_value() || *team == "team" ? building_ : 0;
    };
    options.usual_life = seconds(77);
    options.reboot_time = reboot_time_;
    options.first_retry = milliseconds(1);
    options.token = [](std::string_view id, std::string_view purpose) {
      return std::string(purpose) + "-" + std::string(id);
    };
    return options;
  }

  FakeHost host_;
  Kept kept_;
  std::vector<Noted> events_;
  Quota quota_;
  std::size_t most_running_ = 1000, most_paused_ = 1000;
  std::size_t building_ = 0;  // builds of the team "team"
  // kNext: the next question for a quota waits until this is changed again.
  enum class Hold : std::uint8_t { kNo, kNext, kHolds, kAnswered } hold_quota_ = Hold::kNo;
  Limits limits_ = Limits::kUsual;
  StartCommand start_;
  Pool::Sizes pool_;
  std::string made_network_;
  bool inspect_later_ = false;
  std::shared_ptr<const vault::Vault> vault_;
  std::map<std::string, std::string> kept_secrets_;  // of every team
  bool hold_kept_ = false;                           // nobody is told of them yet
  milliseconds reboot_time_ = seconds(15);
};

// Until `true_now`, for what other coroutines do.
inline io::Async<bool> until(std::function<bool()> true_now) {
  for (int i = 0; i < 5000; ++i) {
    if (true_now()) co_return true;
    co_await io::Loop::sleep(milliseconds(2));
  }
  co_return false;
}

inline const NewSandbox kBase{.template_name = "base", .timeout = seconds(300)};

}  // namespace caisson::fleet
