#include "cli/serve.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "policy/server_config.h"

namespace caisson::cli {
namespace {

TEST(ServeOptions, AreThoseOfTheConfiguration) {
  const auto settings = policy::server_settings();
  ASSERT_EQ(kServeOptions.size(), settings.size() + 3);
  for (const policy::ServerSetting& setting : settings) {
    const auto* option = std::ranges::find(kServeOptions, setting.flag, &Option::name);
    ASSERT_NE(option, kServeOptions.end()) << setting.flag;
    EXPECT_EQ(option->value, setting.value) << setting.flag;
    EXPECT_EQ(option->help, setting.help) << setting.flag;
  }
}

}  // namespace
}  // namespace caisson::cli
