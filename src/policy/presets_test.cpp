#include "policy/presets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "policy/flags.h"
#include "policy/network_explain.h"
#include "policy/network_policy.h"

namespace caisson::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// "METHOD URL": whether the policy lets it through.
bool lets(const NetworkPolicy& policy, const std::string& method, const std::string& url) {
  const auto compiled = CompiledNetwork::compile(policy);
  const auto explained = explain(**compiled, url, method);
  EXPECT_TRUE(explained.has_value()) << url;
  return explained->decision.allowed;
}

NetworkPolicy preset(const std::string& flag) {
  auto read = parse_network("preset:" + flag);
  EXPECT_TRUE(read.has_value() && read->network.has_value()) << flag;
  return *read->network;
}

template <typename T>
std::string refusal(const Result<T>& result) {
  return result.has_value() ? "accepted" : result.error().message();
}

TEST(Presets, PackageManagersReadAndNothingElse) {
  for (const char* name : {"apt", "cargo", "go", "npm", "pip"}) {
    const NetworkPolicy policy = preset(std::string(name) + "=packages.example.com");
    EXPECT_EQ(policy.rules[0].id, name);
    EXPECT_TRUE(lets(policy, "GET", "https://packages.example.com/simple/x/")) << name;
    EXPECT_TRUE(lets(policy, "HEAD", "https://packages.example.com/")) << name;
    EXPECT_FALSE(lets(policy, "POST", "https://packages.example.com/")) << name;
    EXPECT_FALSE(lets(policy, "PUT", "https://packages.example.com/x")) << name;
    EXPECT_FALSE(lets(policy, "GET", "https://other.example.com/")) << name;
    EXPECT_FALSE(lets(policy, "GET", "http://packages.example.com/")) << name;
  }
}

TEST(Presets, GitClonesAndDoesNotPush) {
  const NetworkPolicy policy = preset("git=git.example.com");
  const std::string repository = "https://git.example.com/acme/app.git";
  EXPECT_TRUE(lets(policy, "GET", repository + "/info/refs?service=git-upload-pack"));
  EXPECT_TRUE(lets(policy, "POST", repository + "/git-upload-pack"));
  EXPECT_FALSE(lets(policy, "POST", repository + "/git-receive-pack"));
  EXPECT_FALSE(lets(policy, "POST", "https://git.example.com/git-upload-pack/x"));
  EXPECT_FALSE(lets(policy, "POST", "https://git.example.com/api/issues"));
}

TEST(Presets, ARuleForEachPort) {
  const NetworkPolicy policy =
      preset("apt=a.example.com:80,b.example.com:80,c.example.com:8443,a.example.com:80");
  ASSERT_EQ(policy.rules.size(), 2U);
  EXPECT_THAT(policy.rules[0].hosts, ElementsAre("a.example.com", "b.example.com"));
  EXPECT_EQ(policy.rules[0].tls, TlsMode::kPlaintext);
  EXPECT_EQ(policy.rules[1].id, "apt-2");
  EXPECT_THAT(policy.rules[1].ports, ElementsAre(8443));
  EXPECT_EQ(policy.rules[1].tls, TlsMode::kInspect);
}

TEST(Presets, WithoutHostsTheyAreTheCallersToFind) {
  EXPECT_EQ(parse_network("preset:pip")->preset, "pip");
  EXPECT_EQ(parse_network("preset:pip")->network, std::nullopt);
}

TEST(Presets, RefusalsSayWhatIsAllowed) {
  EXPECT_THAT(refusal(parse_network("preset:pop")), HasSubstr("perhaps pip is meant"));
  EXPECT_THAT(refusal(parse_network("preset:")), HasSubstr("apt, cargo, git, go, npm or pip"));
  EXPECT_THAT(refusal(parse_network("preset:pip=")), HasSubstr("--net preset:pip"));
  EXPECT_THAT(refusal(parse_network("preset:pip=a..b")), HasSubstr("--net preset:pip"));
  EXPECT_THAT(refusal(parse_network("preset:pip=a.example.com:0")), HasSubstr("--net preset:pip"));
  EXPECT_THAT(refusal(parse_network("preset:x=a.example.com")), HasSubstr("\"x\""));
  EXPECT_THAT(refusal(preset_rules("pip", {})), HasSubstr("no server"));
}

TEST(Presets, ServersOfUrls) {
  const PresetServer tls{"a.example.com", 443, true};
  EXPECT_EQ(server_of_url("https://A.example.com/simple?x"), tls);
  EXPECT_EQ(server_of_url("sparse+https://a.example.com"), tls);
  EXPECT_EQ(server_of_url("http://a.example.com:8080/x"),
            (PresetServer{"a.example.com", 8080, false}));
  EXPECT_THAT(refusal(server_of_url("https://me:hunter2@a.example.com/")),
              testing::AllOf(HasSubstr("a user name"), testing::Not(HasSubstr("hunter2"))));
  for (const char* wrong :
       {"", "a.example.com", "ftp://a.example.com/", "https://", "https:///x", "https://${HOST}/"})
    EXPECT_FALSE(server_of_url(wrong).has_value()) << wrong;
}

}  // namespace
}  // namespace caisson::policy
