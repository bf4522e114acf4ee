// What becomes of sandboxes that are there: times, pauses, snapshots and forks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fleet/local_fleet_for_test.h"
#include "fleet/shape.h"

namespace caisson::fleet {
namespace {

using proto::ControlOperation;
using testing::Contains;
using testing::Not;

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

TEST_F(LocalFleetTest, ThatThereIsNoMemoryIsWrittenDownBeforeItGoes) {
  start_ = {.command = "serve", .ready = "check", .label = "label"};
  std::string id;
  with_fleet([&](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    auto made = co_await fleet.create("team", kBase);
    id = (*made)->view().id;
    test.host_.stall(ControlOperation::kReboot);
    auto pause = [](LocalFleet& of, std::string what) -> io::Async<void> {
      std::ignore = co_await of.pause("team", std::move(what), Keep::kFiles);
    };
    current_loop->spawn(pause(fleet, id));
    const bool asked =
        co_await until([&] { return test.host_.asked(id).back() == ControlOperation::kReboot; });
    EXPECT_TRUE(asked);
    EXPECT_EQ(test.kept_.at(id).view.paused_keeps, Keep::kFiles);
    EXPECT_EQ(test.kept_.at(id).view.state, State::kRunning);
  });
}

TEST_F(LocalFleetTest, ASandboxThatDoesNotBootAnewInTimeIsEnded) {
  reboot_time_ = milliseconds(1);
  host_.stall(ControlOperation::kReboot);
  for (const Keep keep : {Keep::kFiles, Keep::kMemory}) {
    with_fleet([keep](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
      auto made = co_await fleet.create("team", kBase);
      const std::string id = (*made)->view().id;
      auto paused = co_await fleet.pause("team", id, keep);
      if (keep == Keep::kMemory) {
        EXPECT_TRUE(paused.has_value());
        const auto resumed = co_await fleet.connect("team", id, seconds(5), Resume::kReboot);
        EXPECT_FALSE(resumed.has_value());
        if (!resumed.has_value()) paused = fail(resumed.error());
      }
      EXPECT_EQ(paused.error().code(), Code::kDeadlineExceeded);
      EXPECT_TRUE((*made)->ended());
      EXPECT_EQ(fleet.find("team", id), nullptr);
      const bool shut = co_await until([&] {
        const auto asked = test.host_.asked(id);
        return !asked.empty() && asked.back() == ControlOperation::kShutdown;
      });
      EXPECT_TRUE(shut);
      const bool forgotten = co_await until([&] { return test.kept_.empty(); });
      EXPECT_TRUE(forgotten);
      const auto events = co_await fleet.events("team", id, {});
      EXPECT_EQ(events->back().message, "the sandbox did not boot anew in time, and was ended");
    });
  }
}

TEST_F(LocalFleetTest, WhatTheTemplateStartsRunsWhereverProcessesAreNew) {
  start_ = {.command = "serve", .ready = "check", .label = "label"};
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    auto made = co_await fleet.create("team", kBase);
    const std::string id = (*made)->view().id;
    const std::vector<std::string> once = {"serve", "check"};
    const std::vector<std::string> twice = {"serve", "check", "serve", "check"};
    EXPECT_EQ(test.host_.started(id), once);
    // Memory that was kept has it running.
    auto paused = co_await fleet.pause("team", id, Keep::kMemory);
    EXPECT_TRUE(paused.has_value());
    auto resumed = co_await fleet.connect("team", id, seconds(60), Resume::kWhatWasKept);
    EXPECT_TRUE(resumed.has_value());
    EXPECT_EQ(test.host_.started(id), once);
    paused = co_await fleet.pause("team", id, Keep::kFiles);
    EXPECT_TRUE(paused.has_value());
    EXPECT_EQ(test.host_.started(id), once);
    resumed = co_await fleet.connect("team", id, seconds(60), Resume::kWhatWasKept);
    EXPECT_TRUE(resumed.has_value());
    EXPECT_EQ(test.host_.started(id), twice);
    const auto forks = co_await fleet.fork("team", id, seconds(60), 1);
    EXPECT_TRUE(forks->front().has_value());
    EXPECT_EQ(test.host_.started(forks->front().value()->view().id), once);
    paused = co_await fleet.pause("team", id, Keep::kMemory);
    EXPECT_TRUE(paused.has_value());
    resumed = co_await fleet.connect("team", id, seconds(60), Resume::kReboot);
    EXPECT_TRUE(resumed.has_value());
    EXPECT_EQ(test.host_.started(id).size(), 6u);
  });
}

TEST_F(LocalFleetTest, AResumeWhoseStartCommandFailsLeavesItPausedWithItsFiles) {
  start_ = {.command = "serve", .ready = "check", .label = "label"};
  std::string id;
  with_fleet([&](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    auto made = co_await fleet.create("team", kBase);
    id = (*made)->view().id;
    const auto paused = co_await fleet.pause("team", id, Keep::kMemory);
    EXPECT_TRUE(paused.has_value());
    test.host_.set_failing({"serve", "check"});
    const auto resumed = co_await fleet.connect("team", id, seconds(60), Resume::kReboot);
    EXPECT_EQ(resumed.error().code(), Code::kFailedPrecondition);
    EXPECT_EQ((*made)->view().state, State::kPaused);
    EXPECT_EQ((*made)->view().paused_keeps, Keep::kFiles);
    EXPECT_EQ(test.kept_.at(id).view.paused_keeps, Keep::kFiles);
    EXPECT_EQ(test.host_.asked(id).back(), ControlOperation::kSetDeadline);
    EXPECT_THAT(test.host_.asked(id), Contains(ControlOperation::kReboot).Times(2));
    test.host_.set_failing({});
  });
  // A server that starts again knows what is to be started.
  with_fleet([&](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    const auto adopted = co_await fleet.adopt();
    EXPECT_EQ(adopted->paused, 1u);
    const auto resumed = co_await fleet.connect("team", id, seconds(60), Resume::kWhatWasKept);
    EXPECT_TRUE(resumed.has_value());
    EXPECT_THAT(test.host_.started(id), Contains("serve").Times(3));
  });
}

TEST_F(LocalFleetTest, AResumeThatNeitherStartsNorStopsEndsIt) {
  start_ = {.command = "serve", .ready = "check", .label = "label"};
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    auto made = co_await fleet.create("team", kBase);
    const std::string id = (*made)->view().id;
    const auto paused = co_await fleet.pause("team", id, Keep::kFiles);
    EXPECT_TRUE(paused.has_value());
    test.host_.set_failing({"serve", "check"});
    test.host_.refuse(ControlOperation::kReboot);
    const auto resumed = co_await fleet.connect("team", id, seconds(60), Resume::kWhatWasKept);
    EXPECT_EQ(resumed.error().code(), Code::kFailedPrecondition);
    EXPECT_TRUE((*made)->ended());
    EXPECT_EQ(fleet.find("team", id), nullptr);
    const bool shut =
        co_await until([&] { return test.host_.asked(id).back() == ControlOperation::kShutdown; });
    EXPECT_TRUE(shut);
    const bool forgotten = co_await until([&] { return test.kept_.empty(); });
    EXPECT_TRUE(forgotten);
    const auto events = co_await fleet.events("team", id, {});
    EXPECT_EQ(events->back().message,
              "the sandbox did not boot anew after its start command failed, and was ended");
    EXPECT_EQ(events->back().fields.at("error"), "not on this host");
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
    Recipe kept = decode_shape(taken->shape).value().recipe;
    kept.image = like.image;
    EXPECT_EQ(kept, like);
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

}  // namespace
}  // namespace caisson::fleet
