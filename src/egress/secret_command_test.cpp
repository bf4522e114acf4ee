#include "egress/secret_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

namespace caisson::egress {
namespace {

using testing::HasSubstr;

std::string refusal(const std::vector<std::string>& command) {
  const auto minted = mint(command, std::nullopt);
  EXPECT_FALSE(minted.has_value());
  return minted.has_value() ? "" : minted.error().message();
}

TEST(SecretCommand, PrintsTheValueWithoutAShell) {
  EXPECT_EQ(mint({"echo", "$HOME;", "*"}, std::nullopt)->value.bytes(), "$HOME; *");
  EXPECT_TRUE(mint({"/bin/echo", "value"}, 1000)->expires.has_value());
}

TEST(SecretCommand, HasNoneOfOurSecretsAndNothingOpen) {
  ::setenv("MY_TOKEN", "canary", 1);
  const auto seen = mint({"sh", "-c", "printf %s \"$MY_TOKEN-$(ls /proc/self/fd | wc -l)\""}, {});
  ::unsetenv("MY_TOKEN");
  ASSERT_TRUE(seen.has_value()) << seen.error().message();
  // Its three, and that of ls itself.
  EXPECT_EQ(seen->value.bytes(), "-4");
}

TEST(SecretCommand, SaysWhyThereIsNoValue) {
  EXPECT_THAT(refusal({}), HasSubstr("without a program"));
  EXPECT_THAT(refusal({"no-such-program"}), HasSubstr("no-such-program is not in PATH"));
  EXPECT_THAT(refusal({"/no/such/program"}), HasSubstr("/no/such/program"));
  EXPECT_THAT(refusal({"sh", "-c", "echo canary; exit 3"}), HasSubstr("failed with status 3"));
  EXPECT_THAT(refusal({"sh", "-c", "kill -9 $$"}), HasSubstr("ended by signal 9"));
  EXPECT_THAT(refusal({"yes"}), HasSubstr("more than 65536 bytes"));
  EXPECT_THAT(refusal({"true"}), HasSubstr("found nothing"));
}

TEST(SecretCommand, EndsWithWhoeverWantsItNoMore) {
  auto started = SecretCommand::start({"sleep", "1000"}, command_environment(), -1);
  ASSERT_TRUE(started.has_value());
  EXPECT_FALSE(started->take().has_value()) << "it goes on";
  // The destructor waits for its end.
}

}  // namespace
}  // namespace caisson::egress
