#include "policy/secret_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caisson::policy {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kWhole = R"(
gh:
  kind: value
  env: GITHUB_TOKEN
  source: {file: /run/secrets/gh}
  shape: prefix:ghp_
  hosts: [api.example.com, "*.example.org"]
  in: [{header: authorization}, {basic: user}, query:api:key, path, "json:/a/b", form:token,
       {json: /c}, basic:any]
  max_occurrences: 2
  on_violation: terminate
  passthrough: [logs.example.com]
minted:
  source: {command: [/usr/bin/mint, --json], ttl: 1h}
  hosts: [minted.example.com]
set:
  source: {fd: 7}
  hosts: [set.example.com]
  inject: {header: X-Key, prefix: "Key "}
plain:
  env: PLAIN
  source: {env: PLAIN}
  shape: jwt
  hosts: [203.0.113.5]
aws:
  kind: sigv4
  access_key: {env: ACCESS}
  secret_key: {vault: key}
  hosts: ["*.example.net"]
  services: [s3, sts]
  regions: [eu-central-1]
passing:
  regions: [r]
  services: [s]
  hosts: [passing.example.com]
  session_token: {file: /token}
  secret_key: {file: /key}
  access_key: {file: /id}
  env: {secret_key: OTHER_KEY}
  kind: sigv4
open:
  source: {vault: open-1}
  hosts: [open.example.com]
  inject: {header: User-Agent, scrub: false}
)";

SecretRule part_of(SecretRule credentials, std::string name, std::string env,
                   SecretSource::Kind source, std::string where) {
  using Part = SecretSigning::Part;
  credentials.signing->part = name.ends_with("access_key")   ? Part::kAccessKey
                              : name.ends_with("secret_key") ? Part::kSecretKey
                                                             : Part::kSessionToken;
  credentials.name = std::move(name);
  credentials.env = std::move(env);
  credentials.source = {.kind = source, .text = std::move(where)};
  return credentials;
}

std::vector<SecretRule> whole() {
  using Kind = SecretPlace::Kind;
  using Half = SecretPlace::Half;
  SecretRule gh, minted, set, plain, open;
  gh.name = "gh";
  gh.env = "GITHUB_TOKEN";
  gh.source = {.kind = SecretSource::Kind::kFile, .text = "/run/secrets/gh"};
  gh.shape = {SecretShape::Kind::kPrefix, "ghp_"};
  gh.hosts = {"api.example.com", "*.example.org"};
  gh.in = {{Kind::kHeader, "authorization", Half::kAny},
           {Kind::kBasic, "", Half::kUser},
           {Kind::kQuery, "api:key", Half::kAny},
           {Kind::kPath, "", Half::kAny},
           {Kind::kJson, "/a/b", Half::kAny},
           {Kind::kForm, "token", Half::kAny},
           {Kind::kJson, "/c", Half::kAny},
           {Kind::kBasic, "", Half::kAny}};
  gh.max_occurrences = 2;
  gh.on_violation = OnSecretViolation::kTerminate;
  gh.passthrough = {"logs.example.com"};
  minted.name = "minted";
  minted.source = {.kind = SecretSource::Kind::kCommand,
                   .command = {"/usr/bin/mint", "--json"},
                   .ttl_ms = 3'600'000};
  minted.hosts = {"minted.example.com"};
  set.name = "set";
  set.source = {.kind = SecretSource::Kind::kFd, .descriptor = 7};
  set.hosts = {"set.example.com"};
  set.inject = SecretInjection{"X-Key", "Key "};
  plain.name = "plain";
  plain.env = "PLAIN";
  plain.source = {.kind = SecretSource::Kind::kEnv, .text = "PLAIN"};
  plain.shape.kind = SecretShape::Kind::kJwt;
  plain.hosts = {"203.0.113.5"};
  open.name = "open";
  open.source = {.kind = SecretSource::Kind::kVault, .text = "open-1"};
  open.hosts = {"open.example.com"};
  open.inject = SecretInjection{.header = "User-Agent", .prefix = "", .scrub = false};
  SecretRule aws;
  aws.hosts = {"*.example.net"};
  aws.signing = SecretSigning{.services = {"s3", "sts"}, .regions = {"eu-central-1"}};
  const SecretRule access =
      part_of(aws, "aws.access_key", "AWS_ACCESS_KEY_ID", SecretSource::Kind::kEnv, "ACCESS");
  const SecretRule key =
      part_of(aws, "aws.secret_key", "AWS_SECRET_ACCESS_KEY", SecretSource::Kind::kVault, "key");
  aws.hosts = {"passing.example.com"};
  aws.signing = SecretSigning{.temporary = true, .services = {"s"}, .regions = {"r"}};
  constexpr auto kFile = SecretSource::Kind::kFile;
  return {gh,
          minted,
          set,
          plain,
          access,
          key,
          part_of(aws, "passing.access_key", "", kFile, "/id"),
          part_of(aws, "passing.secret_key", "OTHER_KEY", kFile, "/key"),
          part_of(aws, "passing.session_token", "", kFile, "/token"),
          open};
}

Result<std::vector<SecretRule>> read(std::string_view yaml) {
  TRY_ASSIGN(const Node root, parse_yaml_tree(yaml, "secrets"));
  return read_secrets(root, "secrets");
}

TEST(SecretDocument, ReadsEveryKey) {
  const auto rules = read(kWhole);
  ASSERT_TRUE(rules.has_value()) << rules.error().message();
  EXPECT_EQ(*rules, whole());
}

TEST(SecretDocument, WhatIsWrittenIsReadAgainAsTheSame) {
  const auto root = parse_json_tree(json::serialize(secrets_tree(whole())), "secrets");
  ASSERT_TRUE(root.has_value()) << root.error().message();
  const auto rules = read_secrets(*root, "secrets");
  ASSERT_TRUE(rules.has_value()) << rules.error().message();
  EXPECT_EQ(*rules, whole());
}

TEST(SecretDocument, MayHaveNone) {
  const auto rules = read("{}");
  ASSERT_TRUE(rules.has_value());
  EXPECT_TRUE(rules->empty());
}

struct Case {
  std::string_view text;
  std::string key, found, allowed;
};

TEST(SecretDocument, RefusesWithKeyFoundAndAllowed) {
  const std::vector<Case> cases = {
      {"[1]", "line 1: secrets", "a list", "a mapping such as {github:"},
      {"gh: token", "secrets.gh", "\"token\"", "a mapping such as {source:"},
      {"gh: {}", "secrets.gh.source.env", "\"\"", "the name of a variable"},
      {"gh: {host: [a.example.com]}", "secrets.gh.host", "an unknown key", "perhaps hosts"},
      {"{gh: {}, gh: {}}", "secrets.gh", "the key twice", "each key once"},
      {"gh: {kind: oauth}", "secrets.gh.kind", "\"oauth\"", "value or sigv4"},
      {"gh: {kind: [1]}", "secrets.gh.kind", "a list", "value or sigv4"},
      {"aws: {kind: sigv4}", "secrets.aws.access_key", "no source", "one of the keys"},
      {"aws: {kind: sigv4, access_key: {env: A}}", "secrets.aws.secret_key", "no source",
       "one of the keys"},
      {"aws: {kind: sigv4, source: {env: A}}", "secrets.aws.source", "an unknown key",
       "access_key"},
      {"aws: {kind: sigv4, access_key: A}", "secrets.aws.access_key", "\"A\"", "one of the keys"},
      {"aws: {kind: sigv4, env: A}", "secrets.aws.env", "\"A\"", "a mapping such as"},
      {"aws: {kind: sigv4, env: {key: A}}", "secrets.aws.env.key", "an unknown key",
       "access_key, secret_key or session_token"},
      {"aws: {kind: sigv4, env: {secret_key: ''}}", "secrets.aws.env.secret_key", "an empty text",
       "the name of a variable"},
      {"aws: {kind: sigv4, access_key: {env: '1'}, secret_key: {env: B}}",
       "secrets.aws.access_key.env", "\"1\"", "the name of a variable"},
      {"aws: {kind: sigv4, access_key: {env: A}, secret_key: {env: B}, hosts: ['*']}",
       "secrets.aws.hosts[0]", "\"*\"", "allow-public"},
      {"aws: {kind: sigv4, access_key: {env: A}, secret_key: {env: B}, hosts: [a.example.com]}",
       "secrets.aws.services", "0 of them", "such as [s3]"},
      {"aws: {kind: sigv4, access_key: {env: A}, secret_key: {env: B}, hosts: [a.example.com], "
       "services: [s3]}",
       "secrets.aws.regions", "0 of them", "eu-central-1"},
      {"aws: {kind: sigv4, access_key: {env: A}, secret_key: {env: B}, hosts: [a.example.com], "
       "services: [s3], regions: ['*']}",
       "secrets.aws.regions[0]", "\"*\"", "letters, digits"},
      {"gh: {env: \"\"}", "secrets.gh.env", "an empty text", "the name of a variable"},
      {"gh: {source: token}", "secrets.gh.source", "\"token\"", "one of the keys env, file"},
      {"gh: {source: {}}", "secrets.gh.source", "no source", "one of the keys"},
      {"gh: {source: {env: A, file: /b}}", "secrets.gh.source", "several", "one of the keys"},
      {"gh: {source: {path: /b}}", "secrets.gh.source.path", "an unknown key", "env, file"},
      {"gh: {source: {command: get}}", "secrets.gh.source.command", "\"get\"", "a list such as"},
      {"gh: {source: {fd: three}}", "secrets.gh.source.fd", "\"three\"", "at least 3"},
      {"gh: {source: {fd: 4294967295}}", "secrets.gh.source.fd", "4294967295", "at least 3"},
      {"gh: {source: {fd: 0}, hosts: [a.example.com]}", "secrets.gh.source.fd", "the number 0",
       "at least 3"},
      {"gh: {source: {env: [1]}}", "secrets.gh.source.env", "a list", "a text"},
      {"gh: {source: {command: [a], ttl: soon}}", "secrets.gh.source.ttl", "\"soon\"", "1h"},
      {"gh: {source: {command: [a], ttl: unlimited}}", "secrets.gh.source.ttl", "unlimited", "1h"},
      {"gh: {source: {command: [a], ttl: [1]}}", "secrets.gh.source.ttl", "a list", "1h"},
      {"gh: {source: {env: A, ttl: 1h}}", "secrets.gh.source.ttl", "a ttl", "command alone"},
      {"gh: {shape: long}", "secrets.gh.shape", "\"long\"", "prefix:TEXT, jwt"},
      {"gh: {shape: prefix}", "secrets.gh.shape", "\"prefix\"", "prefix:TEXT"},
      {"gh: {shape: \"jwt:x\"}", "secrets.gh.shape", "\"jwt:x\"", "prefix:TEXT"},
      {"gh: {shape: [jwt]}", "secrets.gh.shape", "a list", "prefix:TEXT"},
      {"gh: {hosts: a.example.com}", "secrets.gh.hosts", "\"a.example.com\"", "a list such as"},
      {"gh: {source: {env: A}, hosts: [\"*\"]}", "secrets.gh.hosts[0]", "\"*\"", "allow-public"},
      {"gh: {in: path}", "secrets.gh.in", "\"path\"", "a list such as"},
      {"gh: {in: [body]}", "secrets.gh.in[0]", "\"body\"", "{header: NAME}, {basic:"},
      {"gh: {in: [{header: a, basic: any}]}", "secrets.gh.in[0]", "a mapping", "{header: NAME}"},
      {"gh: {in: [{header: [a]}]}", "secrets.gh.in[0]", "a mapping", "{header: NAME}"},
      {"gh: {in: [path, {basic: both}]}", "secrets.gh.in[1].basic", "\"both\"", "any|user"},
      {"gh: {in: [basic]}", "secrets.gh.in[0]", "\"basic\"", "any|user"},
      {"gh: {in: [{header: User-Agent}], source: {env: A}, hosts: [a.example.com]}",
       "secrets.gh.in[0]", "\"User-Agent\"", "do not usually repeat"},
      {"gh: {max_occurrences: many}", "secrets.gh.max_occurrences", "\"many\"", "1 to 64"},
      {"gh: {max_occurrences: -1}", "secrets.gh.max_occurrences", "\"-1\"", "1 to 64"},
      {"gh: {on_violation: ignore}", "secrets.gh.on_violation", "\"ignore\"", "block or terminate"},
      {"gh: {passthrough: {}}", "secrets.gh.passthrough", "a mapping", "a list such as"},
      {"gh: {inject: authorization}", "secrets.gh.inject", "\"authorization\"",
       "a mapping such as"},
      {"gh: {inject: {name: a}}", "secrets.gh.inject.name", "an unknown key",
       "header, prefix or scrub"},
      {"gh: {inject: {header: X-Key, scrub: perhaps}}", "secrets.gh.inject.scrub", "\"perhaps\"",
       "true or false"},
      {"gh: {source: {vault: 'a b'}, hosts: [a.example.com]}", "secrets.gh.source.vault", "\"a b\"",
       "1 to 64"},
      {"gh: {inject: {header: X-Key}, env: A, source: {env: A}, hosts: [a.example.com]}",
       "secrets.gh", "inject beside", "inject without env"},
  };
  for (const Case& c : cases) {
    const auto rules = read(c.text);
    ASSERT_FALSE(rules.has_value()) << c.text;
    EXPECT_EQ(rules.error().code(), Code::kInvalidArgument);
    for (const std::string& part : {c.key, c.found, c.allowed})
      EXPECT_THAT(rules.error().message(), HasSubstr(part)) << c.text;
  }
}

}  // namespace
}  // namespace caisson::policy
