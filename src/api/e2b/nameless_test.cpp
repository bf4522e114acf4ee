#include "api/e2b/nameless.h"

#include <gtest/gtest.h>

#include "api/e2b/signature.h"
#include "api/exchange_for_test.h"
#include "api/fleet_for_test.h"

namespace caisson::api::e2b {
namespace {

class NamelessTest : public testing::Test {
 protected:
  NamelessTest() {
    fleet_.add("i1");
    fleet_.add("i2");
    fleet_.add("i3").view_now.access_token = "";
  }
  std::string found(std::string_view method, std::string_view target, http::Headers headers = {}) {
    const FakeExchange exchange(method, target, std::move(headers));
    const auto served = find_by_secret(fleet_, exchange);
    return served == nullptr ? "" : served->view().id;
  }

  FakeFleet fleet_;
};

TEST_F(NamelessTest, ATokenNamesItsSandbox) {
  EXPECT_EQ(found("POST", "/process.Process/Start", {{"X-Access-Token", "token-of-i2"}}), "i2");
  EXPECT_EQ(found("GET", "/files?path=x", {{"X-Access-Token", "token-of-i1"}}), "i1");
}

TEST_F(NamelessTest, ATokenOfNobodyNamesNothing) {
  EXPECT_EQ(found("GET", "/envs", {{"X-Access-Token", "token-of-i9"}}), "");
  EXPECT_EQ(found("GET", "/envs", {{"X-Access-Token", ""}}), "");
  EXPECT_EQ(found("GET", "/envs"), "");
}

TEST_F(NamelessTest, OtherPathsAreNotTheDataPlanes) {
  EXPECT_EQ(found("GET", "/sandboxes", {{"X-Access-Token", "token-of-i1"}}), "");
  EXPECT_EQ(found("GET", "/", {{"X-Access-Token", "token-of-i1"}}), "");
}

TEST_F(NamelessTest, ASignatureNamesItsSandbox) {
  const auto url = [](FileAccess access, std::optional<std::int64_t> expires) {
    const std::string signature = sign_file("/home/user/a", access, "user", "token-of-i2", expires);
    std::string escaped;
    for (const char c : signature) escaped += c == '+' ? "%2B" : std::string(1, c);
    return "/files?path=/home/user/a&username=user&signature=" + escaped +
           (expires.has_value() ? "&signature_expiration=" + std::to_string(*expires) : "");
  };
  EXPECT_EQ(found("GET", url(FileAccess::kRead, std::nullopt)), "i2");
  EXPECT_EQ(found("POST", url(FileAccess::kWrite, std::nullopt)), "i2");
  // One that has expired is still its sandbox's, which then refuses it.
  EXPECT_EQ(found("GET", url(FileAccess::kRead, 1)), "i2");
  EXPECT_EQ(found("POST", url(FileAccess::kRead, std::nullopt)), "");
}

TEST_F(NamelessTest, APathThatNoSandboxTakesNamesNothing) {
  for (const std::size_t size : {4095, 4096}) {
    const std::string path(size, 'p');
    std::string signature = sign_file(path, FileAccess::kRead, "", "token-of-i1", std::nullopt);
    for (std::size_t at = 0; (at = signature.find('+', at)) != std::string::npos;)
      signature.replace(at, 1, "%2B");
    EXPECT_EQ(found("GET", "/files?path=" + path + "&signature=" + signature),
              size == 4095 ? "i1" : "");
  }
}

TEST_F(NamelessTest, ABadSignatureNamesNothing) {
  EXPECT_EQ(found("GET", "/files?path=x&signature=v1_nobody"), "");
  EXPECT_EQ(found("GET", "/files?path=x&signature=v1_nobody&signature_expiration=soon"), "");
  EXPECT_EQ(found("GET", "/files/compose?signature=v1_nobody"), "");
}

}  // namespace
}  // namespace caisson::api::e2b
