#include "fleet/local_fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/fake_host_for_test.h"

namespace caisson::fleet {
namespace {

using proto::ControlOperation;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

// Survives the fleet, as a database does.
using Kept = std::map<std::string, Record>;

class MemoryRecords final : public Records {
 public:
  explicit MemoryRecords(Kept& kept) : kept_(kept) {}
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
  io::Async<Result<std::vector<Record>>> all() override {
    std::vector<Record> all;
    for (const auto& [id, record] : kept_) all.push_back(record);
    co_return all;
  }
  io::Async<Status> add_events(std::vector<Noted> events) override {
    if (full_disk) co_return fail(Error::exhausted("the database's disk is full"));
    for (Noted& one : events) events_.push_back(std::move(one));
    co_return Status{};
  }
  io::Async<Result<std::vector<Event>>> events(std::string team, std::string id,
                                               EventQuery) override {
    std::vector<Event> found;
    for (const Noted& one : events_) {
      if (one.team == team && one.sandbox == id) found.push_back(one.event);
    }
    if (found.empty()) co_return fail(Error::not_found("no sandbox " + id));
    co_return found;
  }
  static inline bool full_disk = false;

 private:
  Kept& kept_;
  std::vector<Noted> events_;
};

// What a log says, with who did it.
std::vector<std::string> texts(const Result<std::vector<Event>>& events) {
  std::vector<std::string> all;
  if (!events.has_value()) return all;
  for (const Event& event : *events) {
    const auto by = event.fields.find("by");
    all.push_back(event.message + (by == event.fields.end() ? "" : ", " + by->second));
  }
  return all;
}

io::Loop* current_loop = nullptr;

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
                         std::make_unique<MemoryRecords>(test.kept_));
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
    options.find_template = [this](std::string, std::string name) -> io::Async<Result<Template>> {
      if (name != "base") co_return fail(Error::not_found("template '" + name + "' not found"));
      co_return Template{.id = "base-id",
                         .alias = "base",
                         .recipe = {.image = "user"},
                         .limits = limits_,
                         .env = {{"A", "template"}, {"B", "template"}}};
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
    options.usual_life = seconds(77);
    options.token = [](std::string_view id, std::string_view purpose) {
      return std::string(purpose) + "-" + std::string(id);
    };
    return options;
  }

  FakeHost host_;
  Kept kept_;
  Quota quota_;
  std::size_t most_running_ = 1000, most_paused_ = 1000;
  // kNext: the next question for a quota waits until this is changed again.
  enum class Hold : std::uint8_t { kNo, kNext, kHolds, kAnswered } hold_quota_ = Hold::kNo;
  Limits limits_ = Limits::kUsual;
  Pool::Sizes pool_;
};

// Until `true_now`, for what other coroutines do.
io::Async<bool> until(std::function<bool()> true_now) {
  for (int i = 0; i < 5000; ++i) {
    if (true_now()) co_return true;
    co_await io::Loop::sleep(milliseconds(2));
  }
  co_return false;
}

const NewSandbox kBase{.template_name = "base", .timeout = seconds(300)};

TEST_F(LocalFleetTest, MakesFindsAndKillsASandbox) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.env = {{"B", "client"}};
    wanted.metadata = {{"k", "v"}};
    auto made = co_await fleet.create("team", wanted);
    EXPECT_TRUE(made.has_value());
    const SandboxView view = (*made)->view();
    EXPECT_EQ(view.alias, "base");
    EXPECT_EQ(view.access_token, "access-" + view.id);
    EXPECT_EQ(view.traffic_token, "");
    EXPECT_EQ((*made)->env().at("A"), "template");
    EXPECT_EQ((*made)->env().at("B"), "client");
    EXPECT_EQ((*made)->env().at("E2B_SANDBOX_ID"), view.id);
    EXPECT_EQ(fleet.find("team", view.id), *made);
    EXPECT_EQ(fleet.find("other", view.id), nullptr);
    EXPECT_EQ(test.kept_.size(), 1u);
    EXPECT_EQ(fleet.list("team", {}).value().sandboxes.size(), 1u);
    EXPECT_EQ(fleet.list("other", {}).value().sandboxes.size(), 0u);

    const auto others = co_await fleet.kill("other", view.id);
    EXPECT_EQ(others.error().code(), Code::kNotFound);
    const auto killed = co_await fleet.kill("team", view.id);
    EXPECT_TRUE(killed.has_value());
    EXPECT_TRUE((*made)->ended());
    EXPECT_FALSE((*made)->client().has_value());
    EXPECT_EQ(fleet.find_any(view.id), nullptr);
    const auto again = co_await fleet.kill("team", view.id);
    EXPECT_EQ(again.error().code(), Code::kNotFound);
    const bool forgotten = co_await until([&] { return test.kept_.empty() && fleet.size() == 0; });
    EXPECT_TRUE(forgotten);
  });
}

TEST_F(LocalFleetTest, ErrorsOfMakingLeaveNothing) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    const auto unknown = co_await fleet.create("team", {.template_name = "x"});
    EXPECT_EQ(unknown.error().code(), Code::kNotFound);
    test.host_.set_makes(FakeHost::Makes::kNo);
    const auto refused = co_await fleet.create("team", kBase);
    EXPECT_THAT(refused.error().message(), HasSubstr("makes no sandboxes"));
    test.host_.set_makes(FakeHost::Makes::kYes);
    MemoryRecords::full_disk = true;
    const auto full = co_await fleet.create("team", kBase);
    MemoryRecords::full_disk = false;
    EXPECT_EQ(full.error().code(), Code::kResourceExhausted);
    EXPECT_EQ(fleet.size(), 0u);
    EXPECT_TRUE(test.kept_.empty());
    const bool ended = co_await until([&] {
      const auto asked = test.host_.asked("box000000000");
      return !asked.empty() && asked.back() == ControlOperation::kShutdown;
    });
    EXPECT_TRUE(ended);
  });
}

TEST_F(LocalFleetTest, AQuotaCountsWhatRunsAndWhatIsBeingMade) {
  quota_.sandboxes = 1;
  quota_.longest = seconds(1000);
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.timeout = seconds(1001);
    const auto too_long = co_await fleet.create("team", wanted);
    EXPECT_EQ(too_long.error().code(), Code::kInvalidArgument);
    auto first = co_await fleet.create("team", kBase);
    EXPECT_TRUE(first.has_value());
    const auto second = co_await fleet.create("team", kBase);
    EXPECT_EQ(second.error().code(), Code::kResourceExhausted);
    const auto others = co_await fleet.create("other", kBase);
    EXPECT_TRUE(others.has_value());
    // A paused one makes room, and then may have none itself.
    const std::string id = (*first)->view().id;
    const auto paused = co_await fleet.pause("team", id, Keep::kMemory);
    EXPECT_TRUE(paused.has_value());
    const auto third = co_await fleet.create("team", kBase);
    EXPECT_TRUE(third.has_value());
    const auto resumed = co_await fleet.connect("team", id, seconds(10), Resume::kWhatWasKept);
    EXPECT_EQ(resumed.error().code(), Code::kResourceExhausted);
  });
}

TEST_F(LocalFleetTest, OfManyAtOnceNoneGoesOverTheQuota) {
  quota_.sandboxes = 2;
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    std::vector<std::string> ids;
    for (int i = 0; i < 3; ++i) {
      auto made = co_await fleet.create("team", kBase);
      ids.push_back((*made)->view().id);
      const auto paused = co_await fleet.pause("team", ids.back(), Keep::kMemory);
      EXPECT_TRUE(paused.has_value());
    }
    int resumed = 0, refused = 0;
    auto resume = [](LocalFleet& of, std::string id, int& yes, int& no) -> io::Async<void> {
      const auto done = co_await of.connect("team", id, seconds(10), Resume::kWhatWasKept);
      ++(done.has_value() ? yes : no);
    };
    io::Loop& loop = *current_loop;
    for (const std::string& id : ids) loop.spawn(resume(fleet, id, resumed, refused));
    const bool all = co_await until([&] { return resumed + refused == 3; });
    EXPECT_TRUE(all);
    EXPECT_EQ(resumed, 2);
  });
}

TEST_F(LocalFleetTest, OfABurstOfCreatesNoneGoesOverTheQuota) {
  quota_.sandboxes = 5;
  pool_ = {{Recipe{.image = "user"}, 3}};
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    fleet.start_pool();
    const bool ready = co_await until([&] { return fleet.pool_counts().ready == 3; });
    EXPECT_TRUE(ready);
    int made = 0, refused = 0;
    auto create = [](LocalFleet& of, int& yes, int& no) -> io::Async<void> {
      const auto done = co_await of.create("team", kBase);
      ++(done.has_value() ? yes : no);
      if (!done.has_value()) EXPECT_EQ(done.error().code(), Code::kResourceExhausted);
    };
    for (int i = 0; i < 20; ++i) current_loop->spawn(create(fleet, made, refused));
    const bool all = co_await until([&] { return made + refused == 20; });
    EXPECT_TRUE(all);
    EXPECT_EQ(made, 5);
    EXPECT_EQ(fleet.counts().running, 5u);
    EXPECT_EQ(fleet.counts().refused_by_quota, 15u);
    EXPECT_EQ(fleet.counts().pool_taken, 3u);
  });
}

TEST_F(LocalFleetTest, AllTeamsTogetherHaveALimit) {
  most_running_ = 2;
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    for (const char* team : {"one", "two"}) {
      const auto made = co_await fleet.create(team, kBase);
      EXPECT_TRUE(made.has_value());
    }
    const auto third = co_await fleet.create("three", kBase);
    EXPECT_EQ(third.error().code(), Code::kResourceExhausted);
    EXPECT_THAT(third.error().message(), HasSubstr("the server runs 2 sandboxes"));
    EXPECT_EQ(fleet.counts().refused_full, 1u);
    EXPECT_EQ(fleet.counts().refused_by_quota, 0u);
  });
}

TEST_F(LocalFleetTest, WithoutItsQuotaATeamGetsNothing) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    const auto made = co_await fleet.create("nobody", kBase);
    EXPECT_EQ(made.error().code(), Code::kNotFound);
    EXPECT_TRUE(test.kept_.empty());
  });
}

TEST_F(LocalFleetTest, ATeamThatMayHaveLessOfOneSandboxGetsLess) {
  quota_.cpu_milli = 500;
  quota_.memory_bytes = 64ull << 20;
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    const auto made = co_await fleet.create("team", kBase);
    EXPECT_EQ((*made)->view().memory_mib, 64u);
    EXPECT_EQ(test.kept_.begin()->second.recipe.cpu_milli, 500u);
  });
}

TEST_F(LocalFleetTest, WhoAsksForNoTimeGetsTheUsualOneOrAllThatTheTeamMayHave) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    const auto usual = co_await fleet.create("team", {.template_name = "base"});
    EXPECT_EQ((*usual)->view().end - (*usual)->view().started, seconds(77));
    test.quota_.longest = seconds(50);
    const auto shorter = co_await fleet.create("team", {.template_name = "base"});
    EXPECT_EQ((*shorter)->view().end - (*shorter)->view().started, seconds(50));
  });
}

TEST_F(LocalFleetTest, ATemplateThatAsksForTooMuchIsRefused) {
  quota_.memory_bytes = 1ull << 30;
  limits_ = Limits::kAsked;
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    const auto fits = co_await fleet.create("team", kBase);
    EXPECT_TRUE(fits.has_value());
    test.quota_.memory_bytes = 64ull << 20;
    const auto refused = co_await fleet.create("team", kBase);
    EXPECT_EQ(refused.error().message(), "limits.memory: found 512MiB; allowed is 64MiB at most");
  });
}

TEST_F(LocalFleetTest, ASandboxesLogTellsItsLifeAndOutlivesIt) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    auto made = co_await fleet.create("team", kBase);
    const std::string id = (*made)->view().id;
    const auto paused = co_await fleet.pause("team", id, Keep::kMemory);
    EXPECT_TRUE(paused.has_value());
    const auto resumed = co_await fleet.connect("team", id, seconds(10), Resume::kWhatWasKept);
    EXPECT_TRUE(resumed.has_value());
    (*made)->note(Event::Level::kInfo, "a process started");
    const auto killed = co_await fleet.kill("team", id);
    EXPECT_TRUE(killed.has_value());
    const auto log = co_await fleet.events("team", id, {});
    EXPECT_THAT(texts(log),
                testing::ElementsAre("the sandbox was made", "the sandbox was paused, request",
                                     "the sandbox was resumed, request", "a process started",
                                     "the sandbox was killed, request"));
    const auto others = co_await fleet.events("other", id, {});
    EXPECT_EQ(others.error().code(), Code::kNotFound);
  });
}

TEST_F(LocalFleetTest, WhatCannotBeLoggedIsCounted) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    auto made = co_await fleet.create("team", kBase);
    const std::string id = (*made)->view().id;
    const auto before = co_await fleet.events("team", id, {});
    EXPECT_TRUE(before.has_value());
    MemoryRecords::full_disk = true;
    for (int i = 0; i < 4100; ++i) (*made)->note(Event::Level::kInfo, "one of many");
    EXPECT_EQ(fleet.counts().events_lost, 4u);  // more are not held
    const auto after = co_await fleet.events("team", id, {});
    MemoryRecords::full_disk = false;
    EXPECT_EQ(after->size(), 1u);
    EXPECT_EQ(fleet.counts().events_lost, 4100u);
  });
}

TEST_F(LocalFleetTest, WhatIsWrongIsSaidBeforeASandboxIsTaken) {
  pool_ = {{Recipe{.image = "user"}, 1}};
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    fleet.start_pool();
    const bool ready = co_await until([&] { return fleet.pool_counts().ready == 1; });
    EXPECT_TRUE(ready);
    NewSandbox wanted = kBase;
    wanted.metadata = {{"bad", ""}};
    const auto refused = co_await fleet.create("team", wanted);
    EXPECT_EQ(refused.error().code(), Code::kInvalidArgument);
    EXPECT_EQ(fleet.pool_counts().ready, 1u);
    EXPECT_EQ(fleet.pool_counts().taken_total, 0u);
  });
}

TEST_F(LocalFleetTest, OfManyPausesAtOnceNoneGoesOverTheQuota) {
  quota_.paused = 2;
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    std::vector<std::string> ids;
    for (int i = 0; i < 3; ++i) {
      auto made = co_await fleet.create("team", kBase);
      ids.push_back((*made)->view().id);
    }
    int paused = 0, refused = 0;
    std::string left;
    auto pause = [](LocalFleet& of, std::string id, int& yes, int& no,
                    std::string& who) -> io::Async<void> {
      const auto done = co_await of.pause("team", id, Keep::kMemory);
      ++(done.has_value() ? yes : no);
      if (done.has_value()) co_return;
      EXPECT_EQ(done.error().code(), Code::kResourceExhausted);
      who = id;
    };
    for (const std::string& id : ids) current_loop->spawn(pause(fleet, id, paused, refused, left));
    const bool all = co_await until([&] { return paused + refused == 3; });
    EXPECT_TRUE(all);
    EXPECT_EQ(paused, 2);
    // Those whose files alone are kept take none.
    const auto files = co_await fleet.pause("team", left, Keep::kFiles);
    EXPECT_TRUE(files.has_value());
    // A resumed one makes room.
    const std::string first = ids[0] == left ? ids[1] : ids[0];
    const auto resumed = co_await fleet.connect("team", first, seconds(60), Resume::kWhatWasKept);
    EXPECT_TRUE(resumed.has_value());
    const auto again = co_await fleet.pause("team", first, Keep::kMemory);
    EXPECT_TRUE(again.has_value());
  });
}

TEST_F(LocalFleetTest, AllTeamsTogetherPauseNoMoreThanTheServerMayHave) {
  most_paused_ = 1;
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    auto one = co_await fleet.create("one", kBase);
    auto two = co_await fleet.create("two", kBase);
    const auto first = co_await fleet.pause("one", (*one)->view().id, Keep::kMemory);
    EXPECT_TRUE(first.has_value());
    const auto second = co_await fleet.pause("two", (*two)->view().id, Keep::kMemory);
    EXPECT_EQ(second.error().code(), Code::kResourceExhausted);
    EXPECT_EQ((*two)->view().state, State::kRunning);
    EXPECT_EQ(fleet.counts().refused_full, 1u);
  });
}

TEST_F(LocalFleetTest, ADeadlineKeepsTheFilesWhereNoMemoryMayBeKept) {
  quota_.paused = 0;
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.timeout = seconds(0);
    wanted.on_timeout = NewSandbox::OnTimeout::kPause;
    auto made = co_await fleet.create("team", wanted);
    const bool paused = co_await until([&] { return (*made)->view().state == State::kPaused; });
    EXPECT_TRUE(paused);
    EXPECT_EQ((*made)->view().paused_keeps, Keep::kFiles);
  });
}

TEST_F(LocalFleetTest, ADeadlineKillsOrPauses) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    NewSandbox killed = kBase, paused = kBase;
    killed.timeout = paused.timeout = seconds(0);
    paused.on_timeout = NewSandbox::OnTimeout::kPause;
    auto first = co_await fleet.create("team", killed);
    auto second = co_await fleet.create("team", paused);
    const bool done = co_await until(
        [&] { return (*first)->ended() && (*second)->view().state == State::kPaused; });
    EXPECT_TRUE(done);
    EXPECT_FALSE((*second)->client().has_value());
    const auto listed = fleet.list("team", {.running = false}).value();
    EXPECT_EQ(listed.sandboxes.size(), 1u);
    EXPECT_EQ(listed.running, 0u);
  });
}

TEST_F(LocalFleetTest, WhoGetsMoreTimeBeforeItsPauseIsNotPaused) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.timeout = seconds(0);
    wanted.on_timeout = NewSandbox::OnTimeout::kPause;
    auto made = co_await fleet.create("team", wanted);
    test.hold_quota_ = Hold::kNext;
    const std::string id = (*made)->view().id;
    const bool held = co_await until([&] { return test.hold_quota_ == Hold::kHolds; });
    EXPECT_TRUE(held);
    const auto sandbox = std::static_pointer_cast<LocalSandbox>(*made);
    const auto set = co_await sandbox->set_end(WallClock::now() + seconds(300));
    EXPECT_TRUE(set.has_value());
    test.hold_quota_ = Hold::kNo;
    const bool answered = co_await until([&] { return test.hold_quota_ == Hold::kAnswered; });
    EXPECT_TRUE(answered);
    const auto asked_after = co_await sandbox->set_end(WallClock::now() + seconds(301));
    EXPECT_TRUE(asked_after.has_value());
    EXPECT_EQ((*made)->view().state, State::kRunning);
    EXPECT_THAT(test.host_.asked(id), Not(Contains(ControlOperation::kFreeze)));
  });
}

TEST_F(LocalFleetTest, WhatCannotBePausedDoesNotOutliveItsTime) {
  host_.refuse(ControlOperation::kFreeze);
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.timeout = seconds(0);
    wanted.on_timeout = NewSandbox::OnTimeout::kPause;
    auto made = co_await fleet.create("team", wanted);
    const bool ended = co_await until([&] { return (*made)->ended(); });
    EXPECT_TRUE(ended);
  });
}

TEST_F(LocalFleetTest, TimesAreSetAndExtended) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    auto made = co_await fleet.create("team", kBase);
    const std::string id = (*made)->view().id;
    const auto end = [&] { return (*made)->view().end; };
    const auto first = end();
    auto set = co_await fleet.set_timeout("team", id, seconds(10), Fleet::Timeout::kExtendOnly);
    EXPECT_TRUE(set.has_value());
    EXPECT_EQ(end(), first);
    set = co_await fleet.set_timeout("team", id, seconds(10), Fleet::Timeout::kSet);
    EXPECT_LT(end(), first);
    const auto resumed = co_await fleet.connect("team", id, seconds(5000), Resume::kWhatWasKept);
    EXPECT_FALSE(resumed.value());
    EXPECT_GT(end(), first);
    set = co_await fleet.set_timeout("team", id, seconds(1'000'000), Fleet::Timeout::kSet);
    EXPECT_EQ(set.error().code(), Code::kInvalidArgument);
    set = co_await fleet.set_timeout("team", id, seconds(0), Fleet::Timeout::kSet);
    EXPECT_TRUE((*made)->ended());
    set = co_await fleet.set_timeout("team", id, seconds(5), Fleet::Timeout::kSet);
    EXPECT_EQ(set.error().code(), Code::kNotFound);
  });
}

TEST_F(LocalFleetTest, AConnectWithoutTimeKillsNothing) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    auto made = co_await fleet.create("team", kBase);
    const std::string id = (*made)->view().id;
    const auto end = (*made)->view().end;
    const auto connected = co_await fleet.connect("team", id, seconds(0), Resume::kWhatWasKept);
    EXPECT_FALSE(connected.value());
    EXPECT_FALSE((*made)->ended());
    EXPECT_EQ((*made)->view().end, end);
  });
}

TEST_F(LocalFleetTest, ManyThatComeAtOnceResumeASandboxOnce) {
  quota_.sandboxes = 1;
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.auto_resume = true;
    auto made = co_await fleet.create("team", wanted);
    const std::string id = (*made)->view().id;
    const auto paused = co_await fleet.pause("team", id, Keep::kMemory);
    EXPECT_TRUE(paused.has_value());
    int yes = 0, no = 0;
    auto traffic = [](LocalFleet& of, std::shared_ptr<Served> to, int& woken,
                      int& not_woken) -> io::Async<void> {
      const bool done = co_await of.resume_for_traffic(to);
      ++(done ? woken : not_woken);
    };
    auto connect = [](LocalFleet& of, std::string to, int& woken,
                      int& not_woken) -> io::Async<void> {
      const auto done = co_await of.connect("team", to, seconds(60), Resume::kWhatWasKept);
      ++(done.has_value() ? woken : not_woken);
    };
    for (int i = 0; i < 3; ++i) {
      current_loop->spawn(traffic(fleet, *made, yes, no));
      current_loop->spawn(connect(fleet, id, yes, no));
    }
    const bool all = co_await until([&] { return yes + no == 6; });
    EXPECT_TRUE(all);
    EXPECT_EQ(no, 0);
    EXPECT_EQ(fleet.counts().refused_by_quota, 0u);
    EXPECT_THAT(test.host_.asked(id), Contains(ControlOperation::kThaw).Times(1));
  });
}

TEST_F(LocalFleetTest, ASnapshotMovesTheDeadlineOfOneThatIsToBePaused) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.on_timeout = NewSandbox::OnTimeout::kPause;
    auto made = co_await fleet.create("team", wanted);
    const std::string id = (*made)->view().id;
    const auto taken = co_await fleet.snapshot("team", id);
    EXPECT_TRUE(taken.has_value());
    // At its start, before the snapshot, and after it.
    EXPECT_THAT(test.host_.asked(id), Contains(ControlOperation::kSetDeadline).Times(3));
  });
}

TEST_F(LocalFleetTest, APauseThatKeepsTheFilesEndsWhatRunsAndNoTrafficResumesIt) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.auto_resume = true;
    auto made = co_await fleet.create("team", wanted);
    const std::string id = (*made)->view().id;
    const auto paused = co_await fleet.pause("team", id, Keep::kFiles);
    EXPECT_TRUE(paused.has_value());
    EXPECT_EQ(test.kept_.at(id).view.paused_keeps, Keep::kFiles);
    EXPECT_THAT(test.host_.asked(id), Contains(ControlOperation::kReboot));
    EXPECT_THAT(test.host_.asked(id), Not(Contains(ControlOperation::kFreeze)));
    const bool by_traffic = co_await fleet.resume_for_traffic(*made);
    EXPECT_FALSE(by_traffic);
    const auto resumed = co_await fleet.connect("team", id, seconds(5), Resume::kWhatWasKept);
    EXPECT_TRUE(resumed.value());
    EXPECT_THAT(test.host_.asked(id), Contains(ControlOperation::kThaw));
  });
}

TEST_F(LocalFleetTest, AResumeMayBootAnewWhatWasKept) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    auto made = co_await fleet.create("team", kBase);
    const std::string id = (*made)->view().id;
    const auto paused = co_await fleet.pause("team", id, Keep::kMemory);
    EXPECT_TRUE(paused.has_value());
    const auto resumed = co_await fleet.connect("team", id, seconds(5), Resume::kReboot);
    EXPECT_TRUE(resumed.value());
    EXPECT_THAT(test.host_.asked(id), Contains(ControlOperation::kReboot));
    EXPECT_THAT(test.host_.asked(id), Not(Contains(ControlOperation::kThaw)));
  });
}

TEST_F(LocalFleetTest, ASnapshotIsOfTheImageThatItWasMadeFrom) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    auto made = co_await fleet.create("team", kBase);
    const std::string id = (*made)->view().id;
    const auto taken = co_await fleet.snapshot("team", id);
    EXPECT_EQ(taken->image, "snapshot of " + test.kept_.at(id).host_id);
    EXPECT_EQ(test.host_.snapshot_of(), test.kept_.at(id).image);
    const auto foreign = co_await fleet.snapshot("other", id);
    EXPECT_EQ(foreign.error().code(), Code::kNotFound);
    const auto paused = co_await fleet.pause("team", id, Keep::kMemory);
    EXPECT_TRUE(paused.has_value());
    const auto of_paused = co_await fleet.snapshot("team", id);
    EXPECT_EQ(of_paused.error().code(), Code::kFailedPrecondition);
  });
}

TEST_F(LocalFleetTest, ForksAreLikeTheirSource) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.metadata = {{"who", "me"}};
    wanted.env = {{"NAME", "value"}};
    auto made = co_await fleet.create("team", wanted);
    const std::string id = (*made)->view().id;
    const auto forks = co_await fleet.fork("team", id, seconds(60), 2);
    EXPECT_EQ(forks->size(), 2u);
    for (const auto& fork : *forks) {
      EXPECT_TRUE(fork.has_value());
      if (!fork.has_value()) continue;
      const SandboxView& view = (*fork)->view();
      EXPECT_NE(view.id, id);
      EXPECT_EQ(view.metadata, wanted.metadata);
      EXPECT_EQ(view.template_id, (*made)->view().template_id);
      EXPECT_EQ((*fork)->env().at("NAME"), "value");
      EXPECT_EQ(test.kept_.at(view.id).image, "snapshot of " + test.kept_.at(id).host_id);
    }
    const auto foreign = co_await fleet.fork("other", id, seconds(60), 1);
    EXPECT_EQ(foreign.error().code(), Code::kNotFound);
  });
}

TEST_F(LocalFleetTest, AForkIsMadeOfTheWholeRecipe) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.spec =
        R"({"privileges": "none", "user": "root", "limits": {"pids": 7, "memory": "unlimited"}})";
    auto made = co_await fleet.create("team", wanted);
    const std::string id = (*made)->view().id;
    const auto forks = co_await fleet.fork("team", id, seconds(60), 1);
    const auto& fork = forks->front();
    EXPECT_TRUE(fork.has_value());
    Recipe like = test.kept_.at(id).recipe;
    EXPECT_EQ(like.pids, 7u);
    EXPECT_EQ(like.memory_bytes, std::nullopt);
    like.image = "snapshot of " + id;
    EXPECT_EQ(test.kept_.at((*fork)->view().id).recipe, like);
    const auto taken = co_await fleet.snapshot("team", id);
    EXPECT_EQ(taken->memory, 0u);
  });
}

TEST_F(LocalFleetTest, PauseAndResume) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    NewSandbox wanted = kBase;
    wanted.auto_resume = true;
    auto made = co_await fleet.create("team", wanted);
    const std::string id = (*made)->view().id;
    auto paused = co_await fleet.pause("team", id, Keep::kMemory);
    EXPECT_TRUE(paused.has_value());
    EXPECT_EQ(test.kept_.at(id).view.state, State::kPaused);
    paused = co_await fleet.pause("team", id, Keep::kMemory);
    EXPECT_EQ(paused.error().code(), Code::kFailedPrecondition);
    const auto set = co_await fleet.set_timeout("team", id, seconds(9), Fleet::Timeout::kSet);
    EXPECT_EQ(set.error().code(), Code::kFailedPrecondition);
    auto resumed = co_await fleet.connect("team", id, seconds(60), Resume::kWhatWasKept);
    EXPECT_TRUE(resumed.value());
    EXPECT_EQ(test.kept_.at(id).view.state, State::kRunning);
    EXPECT_TRUE((*made)->client().has_value());
    // Traffic wakes who asked for it.
    paused = co_await fleet.pause("team", id, Keep::kMemory);
    const bool woken = co_await fleet.resume_for_traffic(*made);
    EXPECT_TRUE(woken);
    EXPECT_EQ((*made)->view().state, State::kRunning);
    EXPECT_THAT(test.host_.asked(id), Contains(ControlOperation::kThaw).Times(2));
  });
}

TEST_F(LocalFleetTest, ASandboxThatDiesIsForgotten) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    auto made = co_await fleet.create("team", kBase);
    test.host_.end((*made)->view().id);
    co_await (*made)->wait_ended();
    const bool gone = co_await until([&] { return fleet.size() == 0 && test.kept_.empty(); });
    EXPECT_TRUE(gone);
  });
}

TEST_F(LocalFleetTest, ANewFleetTakesUpWhatRunsAndForgetsWhatDoesNot) {
  std::string running, paused, dead;
  with_fleet([&](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    for (std::string* id : {&running, &paused, &dead}) {
      auto made = co_await fleet.create("team", kBase);
      *id = (*made)->view().id;
    }
    const auto done = co_await fleet.pause("team", paused, Keep::kMemory);
    EXPECT_TRUE(done.has_value());
  });
  host_.end(dead);
  kept_[dead].host_id = dead;
  with_fleet([&](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    const auto adopted = co_await fleet.adopt();
    EXPECT_EQ(adopted->running, 1u);
    EXPECT_EQ(adopted->paused, 1u);
    EXPECT_EQ(adopted->lost, 1u);
    EXPECT_EQ(test.kept_.size(), 2u);
    EXPECT_EQ(fleet.find("team", running)->view().access_token, "access-" + running);
    EXPECT_TRUE(fleet.find("team", running)->client().has_value());
    EXPECT_EQ(fleet.find("team", dead), nullptr);
    const auto resumed = co_await fleet.connect("team", paused, seconds(5), Resume::kWhatWasKept);
    EXPECT_TRUE(resumed.value());
  });
}

TEST_F(LocalFleetTest, SandboxesOfAnotherVersionAreLeftToAServerThatKnowsThem) {
  std::string id;
  with_fleet([&](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    const auto made = co_await fleet.create("team", kBase);
    id = (*made)->view().id;
  });
  host_.speak(proto::kVersion + 2, proto::kVersion + 1);
  with_fleet([&](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    const auto adopted = co_await fleet.adopt();
    EXPECT_EQ(adopted->unreached, 1u);
    EXPECT_EQ(adopted->lost, 0u);
    EXPECT_EQ(test.kept_.size(), 1u);
    EXPECT_TRUE(fleet.host_ids().contains(id));
    EXPECT_EQ(fleet.find("team", id), nullptr);
  });
  host_.speak(proto::kVersion + 1, proto::kVersion);
  with_fleet([&](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    const auto adopted = co_await fleet.adopt();
    EXPECT_EQ(adopted->running, 1u);
    EXPECT_NE(fleet.find("team", id), nullptr);
  });
}

TEST_F(LocalFleetTest, ThePoolIsFilledTakenFromAndEnded) {
  pool_ = {{Recipe{.image = "user"}, 2}};
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    fleet.start_pool();
    bool full = co_await until([&] { return fleet.pool_counts().ready == 2; });
    EXPECT_TRUE(full);
    auto made = co_await fleet.create("team", kBase);
    EXPECT_EQ(fleet.pool_counts().taken_total, 1u);
    full = co_await until([&] { return fleet.pool_counts().ready == 2; });
    EXPECT_TRUE(full);
    EXPECT_EQ(test.host_.made(), 3u);
    // One that dies in the pool is replaced, and never given to anybody. Which of the first two was
    // taken is not said.
    const std::string first = "box000000000", second = "box100000000";
    test.host_.end((*made)->view().id == first ? second : first);
    const bool replaced =
        co_await until([&] { return test.host_.made() == 4 && fleet.pool_counts().ready == 2; });
    EXPECT_TRUE(replaced);
    co_await fleet.close();
    EXPECT_EQ(fleet.pool_counts().ready, 0u);
    for (const char* id : {"box200000000", "box300000000"})
      EXPECT_EQ(test.host_.asked(id).back(), ControlOperation::kShutdown) << id;
  });
}

}  // namespace
}  // namespace caisson::fleet
