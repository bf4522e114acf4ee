#include "db/sandbox_events.h"

#include <gtest/gtest.h>

#include "db/database_for_test.h"

namespace caisson::db {
namespace {

class SandboxEventsTest : public DatabaseTest {
 protected:
  SandboxEvent event(std::string sandbox, std::int64_t time_ms, std::string message,
                     LogLevel level = LogLevel::kInfo) {
    return {.sandbox_id = std::move(sandbox),
            .team_id = ours_.id,
            .time_ms = time_ms,
            .level = level,
            .message = std::move(message),
            .fields = {}};
  }
  Status append(const std::vector<SandboxEvent>& events) { return events_.append(events); }
  std::vector<std::string> messages(std::string_view sandbox, const EventFilter& filter) {
    std::vector<std::string> texts;
    for (const SandboxEvent& found : events_.list(ours_.id, sandbox, filter).value())
      texts.push_back(found.message);
    return texts;
  }
  using Texts = std::vector<std::string>;

  SandboxEvents events_{database_};
};

TEST_F(SandboxEventsTest, ComeBackAsTheyWere) {
  SandboxEvent first = event("i1", 5, "process started", LogLevel::kWarn);
  first.fields = {{"pid", "7"}, {"cmd", "a \"quoted\" one"}};
  ASSERT_TRUE(append({first, event("i2", 6, "another's")}));
  EXPECT_EQ(events_.list(ours_.id, "i1", {}).value(), std::vector{first});
}

TEST_F(SandboxEventsTest, EveryConditionCounts) {
  ASSERT_TRUE(append({event("i", 1, "one", LogLevel::kDebug), event("i", 2, "two"),
                      event("i", 3, "three", LogLevel::kError)}));
  EXPECT_EQ(messages("i", {.from_ms = 2}), (Texts{"two", "three"}));
  EXPECT_EQ(messages("i", {.to_ms = 2}), (Texts{"one", "two"}));
  EXPECT_EQ(messages("i", {.least = LogLevel::kInfo}), (Texts{"two", "three"}));
  EXPECT_EQ(messages("i", {.text = "t"}), (Texts{"two", "three"}));
  EXPECT_EQ(messages("i", {.text = "T"}), Texts{});
  EXPECT_EQ(messages("i", {.order = EventFilter::Order::kNewestFirst, .limit = 2}),
            (Texts{"three", "two"}));
  EXPECT_EQ(messages("i", {.limit = 0}), Texts{});
}

TEST_F(SandboxEventsTest, AnotherTeamsAreNotThere) {
  ASSERT_TRUE(append({event("i", 1, "one")}));
  EXPECT_EQ(events_.list(theirs_.id, "i", {}).error().code(), Code::kNotFound);
  EXPECT_EQ(events_.list(ours_.id, "j", {}).error().code(), Code::kNotFound);
}

TEST_F(SandboxEventsTest, OfEachSandboxTheNewestStay) {
  std::vector<SandboxEvent> many;
  for (std::int64_t i = 0; i < kMaxSandboxEvents + 5; ++i)
    many.push_back(event("busy", i, std::to_string(i)));
  ASSERT_TRUE(append({event("quiet", 0, "stays")}));
  ASSERT_TRUE(append(many));
  EXPECT_EQ(messages("busy", {.limit = 2}), (Texts{"5", "6"}));
  EXPECT_EQ(events_.list(ours_.id, "busy", {.limit = 5000}).value().size(),
            static_cast<std::size_t>(kMaxSandboxEvents));
  EXPECT_EQ(messages("quiet", {}), Texts{"stays"});
}

TEST_F(SandboxEventsTest, LongTextsAreCut) {
  SandboxEvent longer = event("i", 1, std::string(kMaxEventText + 9, 'x'));
  longer.fields = {{"cmd", std::string(kMaxEventText + 9, 'y')}};
  ASSERT_TRUE(append({longer}));
  const auto found = events_.list(ours_.id, "i", {}).value();
  EXPECT_EQ(found.at(0).message.size(), kMaxEventText);
  EXPECT_EQ(found.at(0).fields.at("cmd").size(), kMaxEventText);
}

TEST_F(SandboxEventsTest, OfNobodysTeamNoneIsWritten) {
  SandboxEvent stray = event("i", 1, "one");
  stray.team_id = "nobody";
  EXPECT_FALSE(append({event("i", 1, "first"), stray}).has_value());
  EXPECT_EQ(events_.list(ours_.id, "i", {}).error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace caisson::db
