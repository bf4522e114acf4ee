#include "box/secrets.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/fd.h"

namespace caisson::box {
namespace {

using policy::SecretSource;
using ::testing::HasSubstr;

policy::NetworkPolicy policy_of(SecretSource source) {
  policy::SecretRule rule{.name = "gh", .env = "GH_TOKEN", .source = std::move(source)};
  rule.hosts = {"api.example.com"};
  return {.secrets = {rule}};
}

std::string fetched(SecretSource source) {
  const auto values = fetch_secrets(policy_of(std::move(source)));
  if (!values.has_value()) return values.error().message();
  EXPECT_EQ(values->values.size(), 1u);
  return std::string(values->values.front().bytes());
}

// A pipe that has the text and its end.
Fd pipe_with(std::string_view text) {
  std::array<int, 2> ends{};
  VERIFY(::pipe2(ends.data(), O_CLOEXEC) == 0);
  const Fd in(ends[1]);
  VERIFY(::write(in.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  return Fd(ends[0]);
}

TEST(Secrets, AreFetchedFromAVariable) {
  ::setenv("CAISSON_TEST_SECRET", "from the variable", 1);
  EXPECT_EQ(fetched({.text = "CAISSON_TEST_SECRET"}), "from the variable");
  ::unsetenv("CAISSON_TEST_SECRET");
  EXPECT_THAT(fetched({.text = "CAISSON_TEST_SECRET"}),
              HasSubstr("network.secrets.gh: the variable CAISSON_TEST_SECRET is not set"));
}

TEST(Secrets, AVariableIsForgottenWhereItStands) {
  char setting[] = "CAISSON_TEST_SECRET=from the variable";
  ::putenv(setting);
  forget_variables(policy_of({.text = "CAISSON_TEST_SECRET"}));
  EXPECT_EQ(std::string_view(setting, sizeof setting - 1),
            "CAISSON_TEST_SECRET=" + std::string(17, '\0'));
  EXPECT_EQ(::getenv("CAISSON_TEST_SECRET"), nullptr);
  // One that is not there, and a source that is no variable.
  ::setenv("CAISSON_TEST_SECRET", "another's", 1);
  forget_variables(policy_of({.text = "CAISSON_TEST_NOT_SET"}));
  forget_variables(policy_of({.kind = SecretSource::Kind::kFile, .text = "CAISSON_TEST_SECRET"}));
  EXPECT_STREQ(::getenv("CAISSON_TEST_SECRET"), "another's");
  ::unsetenv("CAISSON_TEST_SECRET");
}

TEST(Secrets, AreFetchedFromADescriptorWithoutTheEndOfTheLine) {
  for (const char* text : {"12345678", "12345678\n", "12345678\r\n"}) {
    const Fd pipe = pipe_with(text);
    EXPECT_EQ(fetched({.kind = SecretSource::Kind::kFd, .descriptor = pipe.get()}), "12345678");
  }
  const Fd two = pipe_with("12345678\n\n");
  EXPECT_EQ(fetched({.kind = SecretSource::Kind::kFd, .descriptor = two.get()}), "12345678\n");
  EXPECT_THAT(fetched({.kind = SecretSource::Kind::kFd, .descriptor = 1 << 20}),
              HasSubstr("network.secrets.gh: read"));
}

TEST(Secrets, WhatIsTooLongIsNotCutToWhatIsAllowed) {
  const Fd pipe = pipe_with(std::string(10'000, 'x'));
  EXPECT_GT(fetched({.kind = SecretSource::Kind::kFd, .descriptor = pipe.get()}).size(), 4096u);
}

TEST(Secrets, AFileThatIsNotThereIsNamed) {
  EXPECT_THAT(fetched({.kind = SecretSource::Kind::kFile, .text = "/nowhere/token"}),
              HasSubstr("network.secrets.gh: open /nowhere/token"));
}

TEST(Secrets, WhatThisVersionDoesNotDoIsRefused) {
  EXPECT_THAT(fetched({.kind = SecretSource::Kind::kVault, .text = "x"}), HasSubstr("a vault"));
}

TEST(Secrets, PlaceholdersTakeThePlaceOfWhatTheImageSets) {
  policy::NetworkPolicy values = policy_of({});
  values.secrets.push_back({.name = "injected"});
  std::vector<std::string> environment = {"GH_TOKEN=image", "GH_TOKEN_2=stays", "PATH=/bin"};
  add_placeholders(environment, values, {"placeholder-1", "placeholder-2"});
  EXPECT_THAT(environment, ::testing::UnorderedElementsAre("GH_TOKEN_2=stays", "PATH=/bin",
                                                           "GH_TOKEN=placeholder-1"));
}

TEST(Secrets, AVariableIsEitherASecretsOrTheUsers) {
  const policy::NetworkPolicy values = policy_of({});
  EXPECT_TRUE(check_variables(values, {{"PATH", "/bin"}}).has_value());
  EXPECT_THAT(check_variables(values, {{"GH_TOKEN", "x"}}).error().message(),
              HasSubstr("env.GH_TOKEN: found a value beside network.secrets.gh"));
}

}  // namespace
}  // namespace caisson::box
