#include "cli/pull_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::cli {
namespace {

using ::testing::HasSubstr;
using State = image::LayerProgress::State;

const std::string kDigest(64, 'a');

TEST(PullView, DrawsALineForAllAndABarForEachLayerOnItsWay) {
  PullView view(PullOutput::kNothing);
  view.begin(3, 3 << 20);
  view.layer(
      {.index = 0, .digest = kDigest, .state = State::kPresent, .done = 1 << 20, .total = 1 << 20});
  view.layer(
      {.index = 1, .digest = kDigest, .state = State::kLoading, .done = 1 << 19, .total = 1 << 20});
  const auto lines = view.drawn(80);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], HasSubstr("layers 1/3"));
  EXPECT_THAT(lines[0], HasSubstr("1.5 MiB of 3.0 MiB"));
  EXPECT_THAT(lines[1], HasSubstr("aaaaaaaaaaaa"));
  EXPECT_THAT(lines[1], HasSubstr("###############..............."));
}

TEST(PullView, NoLineIsLongerThanTheTerminal) {
  PullView view(PullOutput::kNothing);
  view.begin(1, 0);
  view.layer({.index = 0, .digest = kDigest, .state = State::kLoading, .done = 5, .total = 0});
  view.unpack(1, 2);
  for (std::size_t columns : {1u, 10u, 51u, 60u, 200u}) {
    for (const std::string& line : view.drawn(columns)) EXPECT_LE(line.size(), columns);
  }
}

}  // namespace
}  // namespace caisson::cli
