#include "fleet/process_log.h"

#include <gtest/gtest.h>

#include "base/verdict.h"
#include "fleet/local_fleet_for_test.h"

namespace caisson::fleet {
namespace {

using proto::ControlOperation;
using proto::Tag;
using Fields = ProcessLog::Fields;

Outcome exited(int code) {
  Outcome outcome;
  outcome.verdict = Verdict::kExited;
  outcome.exit_code = code;
  return outcome;
}

TEST(ProcessLog, AnEndIsNotedOnce) {
  ProcessLog log;
  const Event start = log.started(3, {{"cmd", "sh"}});
  EXPECT_EQ(start.message, "a process started");
  EXPECT_EQ(start.fields, (Fields{{"cmd", "sh"}, {"command", "3"}}));
  const WallClock::time_point when(std::chrono::seconds(7));
  const auto end = log.ended(3, when, exited(2));
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->message, "a process ended");
  EXPECT_EQ(end->time, when);
  EXPECT_EQ(end->level, Event::Level::kInfo);
  EXPECT_EQ(end->fields,
            (Fields{{"cmd", "sh"}, {"command", "3"}, {"exit_code", "2"}, {"verdict", "exited"}}));
  EXPECT_FALSE(log.ended(3, when, exited(2)).has_value());
  EXPECT_FALSE(log.lost(3).has_value());
  EXPECT_FALSE(log.ended(4, when, exited(0)).has_value());
}

TEST(ProcessLog, WhatEndedItIsSaid) {
  ProcessLog log;
  Outcome outcome;
  outcome.verdict = Verdict::kSignaled;
  outcome.signal = 9;
  log.started(1, {});
  EXPECT_EQ(log.ended(1, {}, outcome)->fields.at("signal"), "killed");
  outcome.verdict = Verdict::kTimeLimit;
  outcome.cause = "elapsed";
  log.started(2, {});
  const auto end = log.ended(2, {}, outcome);
  EXPECT_EQ(end->level, Event::Level::kWarn);
  EXPECT_EQ(end->fields.at("cause"), "elapsed");
  log.started(3, {});
  EXPECT_EQ(log.lost(3)->fields.at("verdict"), "not known any more");
}

TEST(ProcessLog, GoesOnWithALogThatThereIs) {
  ProcessLog before, after;
  std::vector<Event> log;
  for (const std::uint32_t number : {1u, 2u, 3u}) log.push_back(before.started(number, {}));
  log.push_back(*before.ended(2, {}, exited(0)));
  log.push_back({.message = "a process started", .fields = {{"command", "x"}}});
  log.push_back({.message = "a process started", .fields = {}});
  after.restore(log);
  EXPECT_EQ(after.open(), (std::set<std::uint32_t>{1, 3}));
}

TEST(ProcessLog, SignalsHaveGosNames) {
  EXPECT_EQ(signal_text(15), "terminated");
  EXPECT_EQ(signal_text(11), "segmentation fault");
  EXPECT_EQ(signal_text(0), "signal 0");
  EXPECT_EQ(signal_text(40), "signal 40");
}

std::string verdict_of(std::uint32_t number, int code) {
  return proto::Fields().put_u32(Tag::kCommand, number).put_u64(Tag::kEndedMs, 7000).bytes() +
         encode_outcome(exited(code));
}

std::vector<Event> ends_in(const std::vector<Event>& log) {
  std::vector<Event> ends;
  for (const Event& event : log) {
    if (event.message == "a process ended") ends.push_back(event);
  }
  return ends;
}

// What the supervisor tells is asked for when a sample is taken.
TEST_F(LocalFleetTest, EndsThatNobodyFollowedAreLookedFor) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    auto made = co_await fleet.create("team", kBase);
    const auto sandbox = std::static_pointer_cast<LocalSandbox>(*made);
    const std::string id = sandbox->view().id;
    for (const std::uint32_t number : {1u, 2u, 3u, 4u}) sandbox->note_start(number, {});
    sandbox->note_end(1, exited(0));
    // The second has ended, the third runs, of the fourth nothing is known any more.
    test.host_.tell(ControlOperation::kListVerdicts, {verdict_of(1, 0), verdict_of(2, 5)});
    test.host_.tell(ControlOperation::kListCommands,
                    {proto::Fields().put_u32(Tag::kCommand, 3).bytes()});
    co_await sandbox->sample();
    co_await sandbox->sample();
    const auto log = co_await fleet.events("team", id, {});
    const std::vector<Event> ends = ends_in(*log);
    EXPECT_EQ(ends.size(), 3u);
    if (ends.size() != 3) co_return;
    EXPECT_EQ(ends[0].fields.at("command"), "1");
    EXPECT_EQ(ends[1].fields.at("exit_code"), "5");
    EXPECT_EQ(ends[1].time, WallClock::time_point(seconds(7)));
    EXPECT_EQ(ends[2].fields.at("verdict"), "not known any more");
  });
}

TEST_F(LocalFleetTest, WhatEndsBetweenTheQuestionsIsNotLost) {
  with_fleet([](LocalFleet& fleet, LocalFleetTest& test) -> io::Async<void> {
    auto made = co_await fleet.create("team", kBase);
    const auto sandbox = std::static_pointer_cast<LocalSandbox>(*made);
    sandbox->note_start(3, {});
    test.host_.tell(ControlOperation::kListCommands,
                    {proto::Fields().put_u32(Tag::kCommand, 3).bytes()});
    for (const auto first : {ControlOperation::kListCommands, ControlOperation::kListVerdicts}) {
      test.host_.tell_after(first, ControlOperation::kListCommands, {});
      test.host_.tell_after(first, ControlOperation::kListVerdicts, {verdict_of(3, 5)});
    }
    co_await sandbox->sample();
    const auto log = co_await fleet.events("team", sandbox->view().id, {});
    const std::vector<Event> ends = ends_in(*log);
    EXPECT_EQ(ends.size(), 1u);
    if (ends.size() == 1)
      EXPECT_FALSE(ends[0].fields.contains("verdict") &&
                   ends[0].fields.at("verdict") == "not known any more");
  });
}

TEST_F(LocalFleetTest, EndsWhileNoServerRanAreNotedByTheNextOne) {
  std::string id;
  with_fleet([&](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    auto made = co_await fleet.create("team", kBase);
    id = (*made)->view().id;
    (*made)->note_start(1, {{"cmd", "sh"}});
    (*made)->note_start(2, {});
    (*made)->note_end(2, exited(0));
    const auto written = co_await fleet.events("team", id, {});
    EXPECT_EQ(written->size(), 4u);
  });
  host_.tell(ControlOperation::kListVerdicts, {verdict_of(1, 5), verdict_of(2, 0)});
  with_fleet([&](LocalFleet& fleet, LocalFleetTest&) -> io::Async<void> {
    const auto adopted = co_await fleet.adopt();
    EXPECT_EQ(adopted->running, 1u);
    const auto sandbox = std::static_pointer_cast<LocalSandbox>(fleet.find("team", id));
    co_await sandbox->sample();
    const auto now = co_await fleet.events("team", id, {});
    const std::vector<Event> ends = ends_in(*now);
    EXPECT_EQ(ends.size(), 2u);
    EXPECT_EQ(ends.back().fields.at("cmd"), "sh");
  });
}

}  // namespace
}  // namespace caisson::fleet
