#include <gtest/gtest.h>

#include <string>

#include "egress/secrets/secrets_for_test.h"
#include "egress/secrets/substitute.h"

// The pauses of a LeakCheck; substitute_test.cpp has the rest.
namespace caisson::egress {
namespace {

using namespace for_test;  // NOLINT: rules and their parts

TEST(LeakCheck, APauseLetsOutTheBeginningOfWhatMayBeAPlaceholderAndNoMore) {
  const auto all = rules({entry()});
  const std::string placeholder(kPlaceholder);
  for (std::size_t at = 1; at < placeholder.size(); ++at) {
    LeakCheck check(all, host("www.example.net"), Channel::kVerifiedTls);
    std::string got = check.feed("x" + placeholder.substr(0, at)).value();
    got += check.pause();
    EXPECT_EQ(got, "x" + (at <= kMostEarly ? placeholder.substr(0, at) : "")) << at;
    EXPECT_EQ(check.pause(), "");
    EXPECT_FALSE(check.feed(placeholder.substr(at)).has_value()) << at;
    EXPECT_EQ(check.pause(), "");
  }
  LeakCheck check(all, host("www.example.net"), Channel::kVerifiedTls);
  std::string got;
  for (const std::string& piece :
       {placeholder.substr(0, 2), std::string("x"), placeholder.substr(0, 4), std::string("end")}) {
    got += check.feed(piece).value();
    got += check.pause();
  }
  got += check.finish().value();
  EXPECT_EQ(got, placeholder.substr(0, 2) + "x" + placeholder.substr(0, 4) + "end");
}

}  // namespace
}  // namespace caisson::egress
