#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/local_fleet_for_test.h"

namespace caisson::fleet {
namespace {

using proto::ControlOperation;
using testing::HasSubstr;

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

TEST_F(LocalFleetTest, WhereSudoIsNotAllowedASpecMustSaySo) {
  quota_.privileges = policy::Privileges::kNone;
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    NewSandbox wanted = kBase;
    for (const char* spec : {"", R"({"privileges": "sudo"})", R"({"limits": {"pids": 7}})"}) {
      wanted.spec = spec;
      const auto refused = co_await fleet.create("team", wanted);
      EXPECT_EQ(refused.error().code(), Code::kInvalidArgument) << spec;
    }
    EXPECT_EQ(test.host_.made(), 0u);
    wanted.spec = R"({"privileges": "none"})";
    const auto made = co_await fleet.create("team", wanted);
    EXPECT_TRUE(made.has_value());
    const auto forks = co_await fleet.fork("team", (*made)->view().id, seconds(60), 1);
    EXPECT_TRUE(forks->front().has_value());
  });
}

TEST_F(LocalFleetTest, BuildsCountAsSandboxesThatRun) {
  quota_.sandboxes = 3;
  building_ = 2;
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    const Status free = co_await fleet.room("team");
    EXPECT_TRUE(free.has_value());
    const auto made = co_await fleet.create("team", kBase);
    EXPECT_TRUE(made.has_value());
    const Status full = co_await fleet.room("team");
    EXPECT_EQ(full.error().code(), Code::kResourceExhausted);
    const auto more = co_await fleet.create("team", kBase);
    EXPECT_EQ(more.error().message(),
              "you have 3 running sandboxes, of which 2 build templates, which is as many as your "
              "team may have");
    // Who only asks is not refused.
    EXPECT_EQ(fleet.counts().refused_by_quota, 1u);
    const Status others = co_await fleet.room("others");
    EXPECT_TRUE(others.has_value());
    const Status nobody = co_await fleet.room("nobody");
    EXPECT_EQ(nobody.error().code(), Code::kNotFound);
    test.building_ = 0;
    const Status again = co_await fleet.room("team");
    EXPECT_TRUE(again.has_value());
  });
}

TEST_F(LocalFleetTest, BuildsCountForTheWholeServerToo) {
  most_running_ = 2;
  building_ = 2;
  with_fleet([](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    const Status full = co_await fleet.room("others");
    EXPECT_THAT(full.error().message(), HasSubstr("the server runs 2 sandboxes"));
    EXPECT_EQ(fleet.counts().refused_full, 0u);
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

TEST_F(LocalFleetTest, ASandboxWhoseRecordCannotBeReadIsLeftUntilItCan) {
  std::string id;
  with_fleet([&](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    const auto made = co_await fleet.create("team", kBase);
    id = (*made)->view().id;
  });
  MemoryRecords::damaged = {id};
  with_fleet([&](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    const auto adopted = co_await fleet.adopt();
    EXPECT_EQ(adopted->damaged, 1u);
    EXPECT_EQ(adopted->lost + adopted->running, 0u);
    // Whoever ends strangers does not take it for one.
    EXPECT_TRUE(fleet.host_ids().contains(id));
    EXPECT_TRUE(test.kept_.contains(id));
    auto log = co_await fleet.events("team", id, {});
    EXPECT_EQ(log->back().message, "the sandbox's record cannot be read, and it was left as it is");
    MemoryRecords::damaged.clear();
    const bool taken_up = co_await until([&] { return fleet.find("team", id) != nullptr; });
    EXPECT_TRUE(taken_up);
    EXPECT_TRUE(fleet.find("team", id)->client().has_value());
  });
}

TEST_F(LocalFleetTest, ASandboxThatIsTakenUpLateIsNobodysUntilItsLogIsRead) {
  std::string id;
  with_fleet([&](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    const auto made = co_await fleet.create("team", kBase);
    id = (*made)->view().id;
  });
  MemoryRecords::damaged = {id};
  bool holds = true;
  with_fleet([&](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    const auto adopted = co_await fleet.adopt();
    EXPECT_EQ(adopted->damaged, 1u);
    MemoryRecords::hold_events = &holds;
    MemoryRecords::events_held = 0;
    MemoryRecords::damaged.clear();
    const bool asked = co_await until([&] { return MemoryRecords::events_held == 1; });
    EXPECT_TRUE(asked);
    EXPECT_EQ(fleet.find("team", id), nullptr);
    holds = false;
    const bool taken_up = co_await until([&] { return fleet.find("team", id) != nullptr; });
    EXPECT_TRUE(taken_up);
    MemoryRecords::hold_events = nullptr;
  });
}

TEST_F(LocalFleetTest, ASandboxThatEndedWithARecordThatCannotBeReadIsForgotten) {
  std::string id;
  with_fleet([&](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    const auto made = co_await fleet.create("team", kBase);
    id = (*made)->view().id;
  });
  MemoryRecords::damaged = {id};
  with_fleet([&](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    const auto adopted = co_await fleet.adopt();
    EXPECT_EQ(adopted->damaged, 1u);
    test.host_.end(id);
    const bool forgotten = co_await until([&] { return test.kept_.empty(); });
    EXPECT_TRUE(forgotten);
    EXPECT_FALSE(fleet.host_ids().contains(id));
  });
  MemoryRecords::damaged.clear();
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
