#include "policy/secret_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

namespace caisson::policy {
namespace {

using ::testing::HasSubstr;

using Kind = SecretPlace::Kind;
using Half = SecretPlace::Half;

SecretRule rule() {
  SecretRule made;
  made.name = "gh";
  made.env = "GH_TOKEN";
  made.source = {.kind = SecretSource::Kind::kFile, .text = "/run/secrets/gh"};
  made.hosts = {"api.example.com", "*.example.org"};
  return made;
}

SecretRule injected() {
  SecretRule made = rule();
  made.env = "";
  made.inject = SecretInjection{"Authorization", "Bearer "};
  return made;
}

TEST(SecretCheck, TakesWhatIsRight) {
  EXPECT_TRUE(check_secret(rule()).has_value());
  EXPECT_TRUE(check_secret(injected()).has_value());
  SecretRule made = rule();
  made.shape = {SecretShape::Kind::kPrefix, "sk-_.~"};
  made.passthrough = {"logs.example.com"};
  made.max_occurrences = 64;
  made.in = {{Kind::kHeader, "X-Key", Half::kAny},   {Kind::kHeader, "Cookie", Half::kAny},
             {Kind::kHeader, "*", Half::kAny},       {Kind::kBasic, "", Half::kPassword},
             {Kind::kQuery, "a key", Half::kAny},    {Kind::kPath, "", Half::kAny},
             {Kind::kJson, "/a/0/~0~1", Half::kAny}, {Kind::kForm, "é", Half::kAny}};
  EXPECT_TRUE(check_secret(made).has_value());
  for (const SecretSource& source :
       {SecretSource{.kind = SecretSource::Kind::kFd, .descriptor = 3},
        SecretSource{.kind = SecretSource::Kind::kVault, .text = "a.b"},
        SecretSource{.kind = SecretSource::Kind::kCommand,
                     .command = {"/bin/get", "", "--json"},
                     .ttl_ms = 1000}}) {
    made.source = source;
    EXPECT_TRUE(check_secret(made).has_value());
  }
}

struct Case {
  std::function<void(SecretRule&)> change;
  std::string complaint;
};

SecretPlace header(std::string name) {
  return {Kind::kHeader, std::move(name), Half::kAny};
}

TEST(SecretCheck, SaysWhatIsWrongWhereAndWhatIsAllowed) {
  const std::string long_name(257, 'x');
  const std::vector<Case> cases = {
      {[](SecretRule& r) { r.name = "a b"; }, "s: found the name \"a b\"; allowed is 1 to 64"},
      {[](SecretRule& r) { r.name = ""; }, "s: found the name"},
      {[](SecretRule& r) { r.name = std::string(65, 'x'); }, "s: found the name"},
      {[](SecretRule& r) { r.env = "1A"; },
       "s.env: found \"1A\"; allowed is the name of a variable"},
      {[](SecretRule& r) { r.env = "A-B"; }, "s.env"},
      {[](SecretRule& r) { r.source = {}; }, "s.source.env: found \"\""},
      {[](SecretRule& r) { r.source.text = ""; }, "s.source.file: found \"\"; allowed is a path"},
      {[](SecretRule& r) { r.source.text = "a\nb"; }, "s.source.file"},
      {[](SecretRule& r) { r.source = {.kind = SecretSource::Kind::kFd, .descriptor = 2}; },
       "s.source.fd: found the number 2; allowed is an inherited descriptor, at least 3"},
      {[](SecretRule& r) { r.source = {.kind = SecretSource::Kind::kCommand}; },
       "s.source.command: found 0 words"},
      {[](SecretRule& r) { r.source = {.kind = SecretSource::Kind::kCommand, .command = {""}}; },
       "s.source.command[0]"},
      {[](SecretRule& r) {
         r.source = {.kind = SecretSource::Kind::kCommand, .command = {"a"}, .ttl_ms = 999};
       },
       "s.source.ttl: found 999ms; allowed is 1s to 365d"},
      {[](SecretRule& r) { r.source.kind = static_cast<SecretSource::Kind>(9); },
       "s.source: found"},
      {[](SecretRule& r) { r.shape = {SecretShape::Kind::kPrefix, ""}; }, "s.shape: found \"\""},
      {[](SecretRule& r) { r.shape = {SecretShape::Kind::kPrefix, "a b"}; }, "s.shape: found"},
      {[](SecretRule& r) { r.shape.kind = static_cast<SecretShape::Kind>(9); },
       "allowed is length, prefix:TEXT, jwt, aws or none"},
      {[](SecretRule& r) { r.hosts = {}; }, "s.hosts: found no host"},
      {[](SecretRule& r) { r.hosts.assign(65, "a.example.com"); }, "s.hosts: found 65 hosts"},
      {[](SecretRule& r) { r.hosts = {"a.example.com", "*.com"}; }, "s.hosts[1]"},
      {[](SecretRule& r) { r.passthrough = {"*"}; }, "s.passthrough[0]"},
      {[](SecretRule& r) { r.in.assign(65, header("x-key")); }, "s.in: found 65 places"},
      {[](SecretRule& r) { r.in = {header("")}; }, "s.in[0]"},
      {[](SecretRule& r) { r.in = {header("a b")}; }, "s.in[0]"},
      {[](SecretRule& r) { r.in = {header("x-key"), header("User-Agent")}; },
       "s.in[1]: found \"User-Agent\"; allowed is the name of a header that servers do not"},
      {[](SecretRule& r) { r.in = {header("Proxy-Authorization")}; }, "s.in[0]"},
      {[](SecretRule& r) { r.in = {header("X-Forwarded-For")}; }, "s.in[0]"},
      {[](SecretRule& r) { r.in = {header("content-type")}; }, "s.in[0]"},
      {[](SecretRule& r) { r.in = {{Kind::kPath, "x", Half::kAny}}; },
       "no name for basic and path"},
      {[](SecretRule& r) { r.in = {{Kind::kBasic, "x", Half::kAny}}; }, "no name"},
      {[](SecretRule& r) { r.in = {{Kind::kBasic, "", static_cast<Half>(3)}}; },
       "any, user or password"},
      {[](SecretRule& r) { r.in = {{Kind::kQuery, "", Half::kAny}}; }, "1 to 256 characters"},
      {[&](SecretRule& r) { r.in = {{Kind::kForm, long_name, Half::kAny}}; }, "1 to 256"},
      {[](SecretRule& r) { r.in = {{Kind::kQuery, "a\nb", Half::kAny}}; }, "\"a\\x0ab\""},
      {[](SecretRule& r) { r.in = {{Kind::kJson, "a", Half::kAny}}; }, "no pointer into JSON"},
      {[](SecretRule& r) { r.in = {{Kind::kJson, "", Half::kAny}}; }, "no pointer into JSON"},
      {[](SecretRule& r) { r.in = {{Kind::kJson, "/a~2", Half::kAny}}; }, "no pointer into JSON"},
      {[](SecretRule& r) { r.in = {{Kind::kJson, "/a~", Half::kAny}}; }, "no pointer into JSON"},
      {[](SecretRule& r) { r.in = {{static_cast<Kind>(9), "", Half::kAny}}; },
       "header, basic, query, path, json or form"},
      {[](SecretRule& r) { r.max_occurrences = 0; }, "s.max_occurrences: found the number 0"},
      {[](SecretRule& r) { r.max_occurrences = 65; }, "allowed is 1 to 64"},
      {[](SecretRule& r) { r.on_violation = static_cast<OnSecretViolation>(2); },
       "block or terminate"},
      {[](SecretRule& r) { r.inject = SecretInjection{"X-Key", ""}; },
       "s: found inject beside what is about a placeholder"},
      {[](SecretRule& r) { (r = injected()).shape.kind = SecretShape::Kind::kJwt; },
       "inject beside"},
      {[](SecretRule& r) { (r = injected()).in = {header("x-key")}; }, "inject beside"},
      {[](SecretRule& r) { (r = injected()).max_occurrences = 2; }, "inject beside"},
      {[](SecretRule& r) { (r = injected()).passthrough = {"a.example.com"}; }, "inject beside"},
      {[](SecretRule& r) { (r = injected()).inject->header = "*"; }, "s.inject.header"},
      {[](SecretRule& r) { (r = injected()).inject->header = "Host"; }, "s.inject.header"},
      {[](SecretRule& r) { (r = injected()).inject->header = "User-Agent"; }, "s.inject.header"},
      {[](SecretRule& r) {
         (r = injected()).inject = SecretInjection{"Content-Length", "", false};
       },
       "says nothing of the message's own form"},
      {[](SecretRule& r) {
         (r = injected()).inject = SecretInjection{"Proxy-Connection", "", false};
       },
       "s.inject.header"},
      {[](SecretRule& r) { (r = injected()).inject = SecretInjection{"a b", "", false}; },
       "s.inject.header"},
      {[](SecretRule& r) { (r = injected()).inject->prefix = "a\r\nb"; }, "s.inject.prefix"},
      {[](SecretRule& r) { (r = injected()).inject->prefix = std::string(65, 'x'); },
       "s.inject.prefix"},
  };
  for (const Case& c : cases) {
    SecretRule made = rule();
    c.change(made);
    const auto checked = check_secret(made, "s");
    ASSERT_FALSE(checked.has_value()) << c.complaint;
    EXPECT_EQ(checked.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(checked.error().message(), HasSubstr(c.complaint));
  }
}

TEST(SecretCheck, NoTwoHaveOneNameOrOneVariable) {
  SecretRule other = rule();
  other.name = "other";
  other.env = "OTHER";
  EXPECT_TRUE(check_secrets(std::vector{rule(), other}).has_value());
  other.env = "GH_TOKEN";
  const auto variable = check_secrets(std::vector{rule(), other});
  ASSERT_FALSE(variable.has_value());
  EXPECT_THAT(variable.error().message(),
              HasSubstr("secrets.other.env: found \"GH_TOKEN\", which another secret has"));
  const auto name = check_secrets(std::vector{injected(), injected()}, "network.secrets");
  ASSERT_FALSE(name.has_value());
  EXPECT_THAT(name.error().message(), HasSubstr("network.secrets.gh: found the name twice"));
  EXPECT_FALSE(check_secrets(std::vector<SecretRule>(65, rule())).has_value());
}

TEST(SecretCheck, APointerIsItsWords) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(parse_json_pointer("/a/0/~1~0~01"), (Words{"a", "0", "/~~1"}));
  EXPECT_EQ(parse_json_pointer("/"), (Words{""}));
  EXPECT_EQ(parse_json_pointer("//a"), (Words{"", "a"}));
  EXPECT_FALSE(parse_json_pointer("/" + std::string(256, 'a')).has_value());
}

}  // namespace
}  // namespace caisson::policy
