#include "fleet/page_token.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::fleet {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

SandboxView view(std::string id, int start) {
  SandboxView made;
  made.id = std::move(id);
  made.started = WallClock::time_point(seconds(start));
  return made;
}

std::vector<std::string> ids(const ListPage& page) {
  std::vector<std::string> all;
  for (const SandboxView& one : page.sandboxes) all.push_back(one.id);
  return all;
}

const std::vector<SandboxView> kFour = {view("a", 1), view("c", 2), view("b", 2), view("d", 3)};

TEST(Page, NewestComeFirstAndEqualTimesAreToldApartByTheId) {
  EXPECT_THAT(ids(page_of(kFour, {}).value()), ElementsAre("d", "c", "b", "a"));
  EXPECT_THAT(ids(page_of(kFour, {.ascending = true}).value()), ElementsAre("a", "b", "c", "d"));
}

TEST(Page, PagesTogetherAreTheList) {
  for (const bool ascending : {false, true}) {
    ListQuery query{.ascending = ascending, .limit = 1};
    std::vector<std::string> all;
    do {
      const ListPage page = page_of(kFour, query).value();
      ASSERT_EQ(page.sandboxes.size(), 1u);
      all.push_back(page.sandboxes[0].id);
      query.after = page.next_token;
    } while (!query.after.empty());
    EXPECT_EQ(all, ids(page_of(kFour, {.ascending = ascending}).value()));
  }
}

TEST(Page, GoesOnBehindASandboxThatHasEnded) {
  ListQuery query{.limit = 2};
  query.after = page_of(kFour, query).value().next_token;
  const std::vector<SandboxView> left = {kFour[0], kFour[2], kFour[3]};
  EXPECT_THAT(ids(page_of(left, query).value()), ElementsAre("b", "a"));
}

TEST(Page, ATokenThatIsNoneIsAnError) {
  const std::string good = page_of(kFour, {.limit = 1}).value().next_token;
  for (const std::string& bad :
       {std::string("x"), std::string("!!!"), good + "A", std::string(300, 'A'),
        std::string("MTIz"), std::string("MTIzX19B")})
    EXPECT_FALSE(page_of(kFour, {.after = bad}).has_value()) << bad;
  // It belongs to the order that it came from.
  EXPECT_FALSE(page_of(kFour, {.ascending = true, .after = good}).has_value());
  EXPECT_TRUE(page_of(kFour, {.after = good}).has_value());
}

TEST(Matches, EveryConditionOfTheQuery) {
  SandboxView one = view("a", 10);
  one.template_id = "t1";
  one.alias = "base";
  one.metadata = {{"user", "u"}, {"app", "x"}};
  EXPECT_TRUE(matches(one, {}));
  EXPECT_TRUE(matches(one, {.metadata = {{"user", "u"}}}));
  EXPECT_FALSE(matches(one, {.metadata = {{"user", "v"}}}));
  EXPECT_FALSE(matches(one, {.metadata = {{"other", "u"}}}));
  EXPECT_TRUE(matches(one, {.template_name = "t1"}));
  EXPECT_TRUE(matches(one, {.template_name = "base"}));
  EXPECT_FALSE(matches(one, {.template_name = "t2"}));
  EXPECT_TRUE(matches(one, {.started_after = one.started}));
  EXPECT_FALSE(matches(one, {.started_after = one.started + seconds(1)}));
  EXPECT_FALSE(matches(one, {.running = false}));
  one.state = State::kPaused;
  EXPECT_TRUE(matches(one, {.running = false}));
  EXPECT_FALSE(matches(one, {.paused = false}));
}

}  // namespace
}  // namespace caisson::fleet
