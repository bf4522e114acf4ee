#include "policy/flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "policy/names.h"
#include "policy/network_policy.h"

namespace caisson::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr GrantMode kRo = GrantMode::kReadOnly;
constexpr GrantMode kRw = GrantMode::kReadWrite;
constexpr GrantMode kCopy = GrantMode::kCopy;
constexpr SourceKind kDir = SourceKind::kDirectory;
constexpr SourceKind kFile = SourceKind::kFile;

TEST(Flags, GrantsSplitAtTheColon) {
  struct Case {
    std::string text, from, to;
  };
  for (const Case& c : std::vector<Case>{{".", ".", ""},
                                         {"src:/srv/src", "src", "/srv/src"},
                                         {"a\\:b:/c\\:d", "a:b", "/c:d"},
                                         {"a\\\\:/b", "a\\", "/b"},
                                         {"a\\b", "a\\b", ""},
                                         {"a\\", "a\\", ""},
                                         {"~/x y", "~/x y", ""}}) {
    const auto grant = parse_grant(kRw, c.text);
    ASSERT_TRUE(grant) << c.text << grant.error().message();
    EXPECT_EQ(grant->from, c.from) << c.text;
    EXPECT_EQ(grant->to, c.to) << c.text;
    EXPECT_EQ(grant->mode, kRw);
  }
}

template <typename T>
std::string refusal(const Result<T>& result) {
  return result.has_value() ? "accepted" : result.error().message();
}

TEST(Flags, RefusesWithFlagFoundAndAllowed) {
  struct Case {
    std::string message;
    std::string flag, found, allowed;
  };
  SpecPatch patch;
  const std::vector<Case> cases = {
      {refusal(parse_grant(kRo, "")), "--ro", "\"\" without SRC", "SRC or SRC:DST"},
      {refusal(parse_grant(kRw, ":/a")), "--rw", "\":/a\" without SRC", "SRC or SRC:DST"},
      {refusal(parse_grant(kCopy, "a:")), "--copy", "\"a:\" without DST", "SRC or SRC:DST"},
      {refusal(parse_grant(kRo, "a:/b:ro")), "--ro", "\"a:/b:ro\"", "written as \\:"},
      {refusal(parse_grant(kRo, "a:b")), "--ro", "DST \"b\"", "an absolute path"},
      {refusal(parse_grant(kRo, "a:/proc/1")), "--ro", "DST \"/proc/1\"", "outside /proc"},
      {refusal(parse_output("a", "/w")), "--out", "\"a\"", "PATH:DEST"},
      {refusal(parse_output(":a", "/w")), "--out", "\":a\"", "PATH:DEST"},
      {refusal(parse_output("/a:", "/w")), "--out", "\"/a:\"", "PATH:DEST"},
      {refusal(parse_output("/a:b:c", "/w")), "--out", "\"/a:b:c\"", "written as \\:"},
      {refusal(parse_output("a:b", "")), "--out", "PATH \"a\"", "an absolute path"},
      {refusal(parse_output("../a:b", "/w")), "--out", "PATH \"/w/../a\"", "without . and .."},
      {refusal(parse_output("/:b", "/w")), "--out", "PATH \"/\"", "below /"},
      {refusal(parse_env("HOME")), "--env", "\"HOME\"", "as in --env NAME=\"$NAME\""},
      {refusal(parse_env("")), "--env", "\"\"", "NAME=VALUE"},
      {refusal(parse_env("=x")), "--env", "\"=x\"", "a name that is not empty"},
      {refusal(parse_wall("namespaces")), "--wall", "\"namespaces\"", "perhaps namespace is meant"},
      {refusal(parse_emulation("on")), "--emulation", "\"on\"", "deny or allow"},
      {refusal(parse_privileges("Sudo")), "--privileges", "\"Sudo\"", "perhaps sudo is meant"},
      {refusal(parse_profile("")), "--profile", "\"\"", "default, browser or debug"},
      {refusal(parse_on_refusal("killed")), "--on-refusal", "\"killed\"",
       "continue or kill; perhaps kill is meant"},
      {refusal(parse_layer("ram")), "--layer", "\"ram\"", "tmpfs or quota"},
      {refusal(parse_network("example")), "--net", "\"example\"", "allow:HOST[:PORT]"},
      {refusal(set_limit_flag(patch, "--memory", "512m")), "--memory", "no unit \"m\"", "a size"},
      {refusal(set_limit_flag(patch, "--pids", "0")), "--pids", "zero", "write unlimited"},
      {refusal(set_limit_flag(patch, "--io-write", "1m/s")), "--io-write", "no unit \"m\"",
       "bytes a second"},
      {refusal(set_limit_flag(patch, "--io-read-ops", "0/s")), "--io-read-ops", "zero",
       "write unlimited"},
      {refusal(set_limit_flag(patch, "--timeout", "5")), "--timeout", "no unit", "a duration"},
      {refusal(parse_limit_flag(kLimitRules[0], "x")), "--cpus", "\"x\"", "a number of processors"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(c.message, StartsWith(c.flag + ": found "));
    const std::size_t allowed = c.message.find("; allowed is ");
    ASSERT_NE(allowed, std::string::npos) << c.message;
    EXPECT_THAT(c.message.substr(0, allowed), HasSubstr(c.found));
    EXPECT_THAT(c.message.substr(allowed), HasSubstr(c.allowed));
  }
  EXPECT_THAT(refusal(set_limit_flag(patch, "--size", "1")),
              HasSubstr("--size is no limit's flag"));
}

TEST(Flags, ReadsEveryChoice) {
  for (std::size_t i = 0; i < kWallNames.size(); ++i) {
    EXPECT_EQ(*parse_wall(kWallNames[i]), static_cast<WallKind>(i));
  }
  EXPECT_TRUE(*parse_emulation("allow"));
  EXPECT_FALSE(*parse_emulation("deny"));
  EXPECT_EQ(*parse_privileges("sudo"), Privileges::kSudo);
  EXPECT_EQ(*parse_profile("debug"), SyscallProfile::kDebug);
  EXPECT_EQ(*parse_on_refusal("continue"), OnRefusal::kContinue);
  EXPECT_EQ(*parse_on_refusal("kill"), OnRefusal::kKill);
  EXPECT_EQ(*parse_layer("quota"), LayerKind::kQuota);
  EXPECT_EQ(*parse_env("A=b=c"), (std::pair<std::string, std::string>("A", "b=c")));
  EXPECT_EQ(parse_env("A=")->second, "");
  EXPECT_EQ(*parse_output("/a\\:b:c", ""), (Output{"/a:b", "c"}));
  EXPECT_EQ(*parse_output("./r/x:c", "/w"), (Output{"/w/r/x", "c"}));
}

TEST(Flags, ReadsWhatTheNetworkIs) {
  EXPECT_EQ(parse_network("deny")->network, std::nullopt);
  EXPECT_EQ(parse_network("allow-public")->network->unmatched, NetworkDefault::kAllowPublic);
  EXPECT_EQ(parse_network("./net")->file, "./net");
  EXPECT_EQ(parse_network("net.yaml")->file, "net.yaml");
  const std::vector<NetworkRule> rules = {
      {.hosts = {"a.example.com"}},
      {.hosts = {"*.example.com"}, .ports = {443}},
      {.hosts = {"b.example.com"}, .ports = {80}, .tls = TlsMode::kPlaintext},
      {.hosts = {"c.example.com"}, .ports = {5432}, .protocol = RuleProtocol::kTcp},
      {.hosts = {"[2001:db8::1]"}},
      {.hosts = {"[2001:db8::1]"}, .ports = {22}, .protocol = RuleProtocol::kTcp}};
  const auto flag = parse_network(
      "allow:a.example.com,*.example.com:443,b.example.com:80,c.example.com:5432,[2001:db8::1],"
      "[2001:db8::1]:22");
  ASSERT_TRUE(flag.has_value()) << flag.error().message();
  EXPECT_EQ(flag->network->rules, rules);
}

TEST(Flags, WhatIsToBeInspectedIsTlsOnAnyPort) {
  const std::vector<NetworkRule> rules = {
      {.hosts = {"a.example.com"}, .tls = TlsMode::kInspect},
      {.hosts = {"b.example.com"}, .ports = {8443}, .tls = TlsMode::kInspect}};
  const auto flag = parse_network("inspect:a.example.com,b.example.com:8443");
  ASSERT_TRUE(flag.has_value()) << flag.error().message();
  EXPECT_EQ(flag->network->rules, rules);
}

TEST(Flags, RefusesWhatTheNetworkCannotBe) {
  for (const char* text :
       {"inspect:", "inspect:a.example.com:0", "allow:", "allow:a.example.com,", "allow:*",
        "allow:*.com", "allow:a.example.com:0", "allow:a.example.com:http", "allow:a b"}) {
    EXPECT_THAT(refusal(parse_network(text)), HasSubstr("--net")) << text;
  }
}

TEST(Flags, ReadsWhereASecretComesFromAndWhereItGoes) {
  const auto rule = parse_secret("GH_TOKEN=env@api.example.com,*.example.org");
  ASSERT_TRUE(rule.has_value()) << rule.error().message();
  SecretRule wanted{.name = "GH_TOKEN", .env = "GH_TOKEN"};
  wanted.source.text = "GH_TOKEN";
  wanted.hosts = {"api.example.com", "*.example.org"};
  EXPECT_EQ(*rule, wanted);
  EXPECT_EQ(parse_secret("A=env:B@a.example.com")->source.text, "B");
  EXPECT_EQ(parse_secret("A=file:/x@y@a.example.com")->source,
            (SecretSource{.kind = SecretSource::Kind::kFile, .text = "/x@y"}));
  EXPECT_EQ(parse_secret("A=fd:7@a.example.com")->source.descriptor, 7);
  const SecretSource command{.kind = SecretSource::Kind::kCommand,
                             .command = {"get-token", "me@home", "$HOME"}};
  EXPECT_EQ(parse_secret("A=command:get-token me@home  $HOME @a.example.com")->source, command);
  EXPECT_THAT(parse_secret("A=command: @a.example.com").error().message(),
              HasSubstr("a program and its arguments"));
  const SecretSource kept{.kind = SecretSource::Kind::kVault, .text = "forge"};
  EXPECT_EQ(parse_secret("A=vault:forge@a.example.com")->source, kept);
  EXPECT_EQ(parse_secret("forge=vault@a.example.com")->source, kept);
  EXPECT_EQ(*parse_secret_source("vault:forge"), kept);
}

TEST(Flags, RefusesASecretWithoutRepeatingWhatMayBeOne) {
  struct Case {
    const char *text, *allowed;
  };
  for (const Case& wrong :
       {Case{"geheim", "NAME=SOURCE@HOST"}, Case{"A=geheim", "NAME=SOURCE@HOST"},
        Case{"A=geheim@a.example.com", "env:VARIABLE"}, Case{"A=env@", "--secret \"A\".hosts[0]"},
        Case{"A=env@*.com", "hosts[0]"}, Case{"1A=env@a.example.com", "a variable"},
        Case{"A=fd:2@a.example.com", "at least 3"}, Case{"A=fd:x@a.example.com", "inherited"},
        Case{"A=fd:9x@a.example.com", "inherited"},
        Case{"=env@a.example.com", "1 to 64 letters"}}) {
    const std::string told = refusal(parse_secret(wrong.text));
    EXPECT_THAT(told, HasSubstr("--secret")) << wrong.text;
    EXPECT_THAT(told, HasSubstr(wrong.allowed)) << wrong.text;
    EXPECT_EQ(told.find("geheim"), std::string::npos) << told;
  }
}

TEST(Flags, SecretsAreTheNetworks) {
  SpecPatch flags;
  flags.secrets = {*parse_secret("A=env@a.example.com")};
  EXPECT_EQ(merge({}, flags).network->secrets.size(), 1u);
  SpecValues document;
  document.network = parse_network("allow:a.example.com")->network;
  document.network->secrets = {*parse_secret("B=env@a.example.com")};
  EXPECT_EQ(merge(document, flags).network->secrets.size(), 2u);
}

TEST(Flags, SeveralNetworksAreOne) {
  SpecPatch flags;
  ASSERT_TRUE(add_network(flags, parse_network("allow:a.example.com")->network).has_value());
  ASSERT_TRUE(add_network(flags, parse_network("allow-public")->network).has_value());
  NetworkPolicy limited;
  limited.limits.connections = 1;
  limited.rules = {{.action = RuleAction::kDeny, .hosts = {"b.example.com"}}};
  ASSERT_TRUE(add_network(flags, limited).has_value());
  const std::optional<NetworkPolicy>& policy = *flags.network;
  EXPECT_EQ(policy->unmatched, NetworkDefault::kAllowPublic);
  EXPECT_EQ(policy->limits.connections, 1u);
  ASSERT_EQ(policy->rules.size(), 2u);
  EXPECT_EQ(policy->rules[1].hosts[0], "b.example.com");
  EXPECT_THAT(refusal(add_network(flags, std::nullopt)), HasSubstr("deny beside another"));
}

// Whatever a policy says, nothing of it is lost beside another, whichever comes first.
TEST(Flags, NoFieldOfANetworkIsLostBesideAnother) {
  NetworkPolicy full;
  full.unmatched = NetworkDefault::kAllowPublic;
  full.floor = Floor::kFixed;
  full.dns.ttl = 7;
  full.limits.connections = 1;
  full.audit.sync = AuditSync::kEach;
  full.rules = {{.id = "one", .hosts = {"a.example.com"}}};
  full.secrets = {*parse_secret("A=env@a.example.com")};
  full.upstream_proxy = UpstreamProxy{.address = "proxy.example.com:1080"};
  for (const bool first : {true, false}) {
    SpecPatch flags;
    if (first) ASSERT_TRUE(add_network(flags, full).has_value());
    ASSERT_TRUE(add_network(flags, NetworkPolicy()).has_value());
    if (!first) ASSERT_TRUE(add_network(flags, full).has_value());
    EXPECT_EQ(*flags.network, full) << first;
  }
  SpecPatch flags;
  ASSERT_TRUE(add_network(flags, full).has_value());
  NetworkPolicy other;
  other.upstream_proxy = UpstreamProxy{.address = "other.example.com:1080"};
  EXPECT_THAT(refusal(add_network(flags, other)), HasSubstr("upstream_proxy"));
}

TEST(Flags, APresetMayBeGivenTwice) {
  SpecPatch flags;
  for (const char* text : {"preset:apt=a.example.com,b.example.com:80", "preset:apt=c.example.com",
                           "preset:pip=c.example.com", "preset:apt=d.example.com,e.example.com:80"})
    ASSERT_TRUE(add_network(flags, parse_network(text)->network).has_value()) << text;
  std::vector<std::string> ids;
  for (const NetworkRule& rule : (*flags.network)->rules) ids.push_back(rule.id);
  EXPECT_THAT(ids, ElementsAre("apt", "apt-2", "apt-3", "pip", "apt-4", "apt-5"));
  EXPECT_TRUE(CompiledNetwork::compile(**flags.network).has_value());
}

struct Flag {
  GrantMode mode;
  std::string text;
  SourceKind kind;
};

Result<Placement> placed(const std::vector<Flag>& flags, std::string_view workdir) {
  std::vector<GrantFlag> grants;
  for (const Flag& flag : flags) {
    TRY_ASSIGN(GrantFlag grant, parse_grant(flag.mode, flag.text));
    grant.kind = flag.kind;
    grants.push_back(grant);
  }
  return place_grants(grants, workdir);
}

TEST(Flags, PlacesGrantsWithoutDst) {
  struct Case {
    std::vector<Flag> flags;
    std::string workdir;
    std::vector<std::string> to;
    std::string workdir_after;
  };
  const std::vector<Case> cases = {
      {{}, "", {}, ""},
      {{}, "/home/user", {}, "/home/user"},
      {{{kRo, ".", kDir}}, "", {"/workspace"}, "/workspace"},
      {{{kRo, ".", kDir}}, "/home/user", {"/workspace"}, "/home/user"},
      {{{kRo, ".:/src", kDir}}, "", {"/src"}, ""},
      {{{kRo, "a", kDir}, {kRw, "b/c/", kDir}}, "", {"/workspace", "/mnt/c"}, "/workspace"},
      {{{kRo, "x:/x", kDir}, {kRw, "b", kDir}}, "", {"/x", "/workspace"}, "/workspace"},
      // What lies inside the workspace keeps its place where that holds.
      {{{kRo, ".", kDir}, {kRw, "out/a", kDir}},
       "",
       {"/workspace", "/workspace/out/a"},
       "/workspace"},
      {{{kRw, ".", kDir}, {kRo, ".git", kDir}},
       "",
       {"/workspace", "/workspace/.git"},
       "/workspace"},
      {{{kRw, ".", kDir}, {kRo, "a/b", kDir}}, "", {"/workspace", "/mnt/b"}, "/workspace"},
      {{{kRo, "/p/q", kDir}, {kRw, "/p/q/r.db", kFile}},
       "",
       {"/workspace", "/workspace/r.db"},
       "/workspace"},
      {{{kRo, ".", kDir}, {kCopy, "r.db", kFile}}, "", {"/workspace", "/mnt/r.db"}, "/workspace"},
      {{{kRo, ".", kDir}, {kRo, "../d.csv", kFile}},
       "",
       {"/workspace", "/mnt/d.csv"},
       "/workspace"},
      {{{kCopy, ".", kDir}, {kCopy, "../d.csv", kFile}},
       "",
       {"/workspace", "/workspace/d.csv"},
       "/workspace"},
      // Files alone go to the working directory.
      {{{kRo, "a/s.py", kFile}}, "", {"/workspace/s.py"}, "/workspace"},
      {{{kRo, "s.py", kFile}, {kRw, "t", kFile}},
       "/home/user",
       {"/home/user/s.py", "/home/user/t"},
       "/home/user"},
      {{{kRo, "s.py", kFile}}, "/", {"/s.py"}, "/"},
      // A file in front of the directory that becomes the workspace.
      {{{kRo, "/x/s.py", kFile}, {kRo, ".", kDir}}, "", {"/mnt/s.py", "/workspace"}, "/workspace"},
      {{{kRo, "s.py", kFile}, {kRo, "d:/home", kDir}},
       "/home/user",
       {"/mnt/s.py", "/home"},
       "/home/user"},
  };
  for (const Case& c : cases) {
    const auto placement = placed(c.flags, c.workdir);
    std::string text;
    for (const Flag& flag : c.flags) text += flag.text + " ";
    ASSERT_TRUE(placement) << text << placement.error().message();
    std::vector<std::string> to;
    for (std::size_t i = 0; i < placement->grants.size(); ++i) {
      to.push_back(placement->grants[i].to);
      EXPECT_EQ(placement->grants[i].mode, c.flags[i].mode);
    }
    EXPECT_EQ(to, c.to) << text;
    EXPECT_EQ(placement->workdir, c.workdir_after) << text;
    // Whatever is placed here is no contradiction.
    SpecValues values;
    values.grants = placement->grants;
    values.workdir = placement->workdir;
    const auto spec = SandboxSpec::validate(values);
    EXPECT_TRUE(spec) << text << spec.error().message();
  }
}

TEST(Flags, RefusesGrantsWithoutAPlace) {
  EXPECT_THAT(refusal(placed({{kRo, ".", kDir}, {kRw, "..", kDir}}, "")),
              HasSubstr("--rw: found \"..\", a path without a name of its own; allowed is SRC:DST "
                        "here, as in \"..:/mnt/data\""));
  EXPECT_THAT(refusal(placed({{kRo, ".", kDir}, {kRo, "/", kDir}}, "")), HasSubstr("--ro: found"));
  EXPECT_THAT(refusal(placed({{kRo, ".", kDir}, {kRo, "/a/x", kDir}, {kCopy, "/b/x", kDir}}, "")),
              HasSubstr("--copy: found \"/b/x\" at \"/mnt/x\"; allowed is one grant for each path "
                        "inside; \"/a/x\" is there already"));
  EXPECT_THAT(refusal(placed({{kRo, "a:/x", kDir}, {kRo, "b:/x", kDir}}, "")),
              HasSubstr("--ro: found \"b\" at \"/x\"; allowed is one grant"));
}

TEST(Merge, FlagsWinOverTheDocument) {
  SpecValues document;
  document.image = "base";
  document.user = "root";
  document.command = {"a", "b"};
  document.env = {{"A", "1"}, {"B", "2"}};
  document.grants = {{"x", "/x", kRo}, {"y", "/y", kRo}};
  document.outputs = {{"/r", "r"}, {"/s", "s"}};
  document.limits.pids = 5;
  document.limits.memory = 1ull << 30;
  document.require_hard_limits = true;

  EXPECT_EQ(merge(document, {}), document);

  SpecPatch flags;
  flags.image = "host";
  flags.workdir = "/w";
  flags.hostname = "h";
  flags.wall = WallKind::kMicrovm;
  flags.allow_emulation = true;
  flags.require_hard_limits = false;
  flags.privileges = Privileges::kSudo;
  flags.profile = SyscallProfile::kDebug;
  flags.on_refusal = OnRefusal::kKill;
  flags.layer = LayerKind::kQuota;
  flags.network.emplace(NetworkPolicy());
  flags.command = {"c"};
  flags.entrypoint = {"sh", "-c"};
  flags.env = {{"B", "3"}, {"C", "4"}};
  flags.grants = {{"z", "/y", kRw}, {"q", "/q", kCopy}};
  flags.outputs = {{"/t", "s"}};
  ASSERT_TRUE(set_limit_flag(flags, "--pids", "unlimited"));
  ASSERT_TRUE(set_limit_flag(flags, "--cpus", "0.5"));

  const SpecValues merged = merge(document, flags);
  EXPECT_EQ(merged.image, "host");
  EXPECT_EQ(merged.user, "root");
  EXPECT_EQ(merged.workdir, "/w");
  EXPECT_EQ(merged.hostname, "h");
  EXPECT_EQ(merged.wall, WallKind::kMicrovm);
  EXPECT_TRUE(merged.allow_emulation);
  EXPECT_FALSE(merged.require_hard_limits);
  EXPECT_EQ(merged.privileges, Privileges::kSudo);
  EXPECT_EQ(merged.profile, SyscallProfile::kDebug);
  EXPECT_EQ(merged.on_refusal, OnRefusal::kKill);
  EXPECT_EQ(merged.layer, LayerKind::kQuota);
  EXPECT_THAT(merged.command, ElementsAre("c"));
  EXPECT_EQ(merged.entrypoint, (std::vector<std::string>{"sh", "-c"}));
  EXPECT_EQ(merged.env, (std::map<std::string, std::string>{{"A", "1"}, {"B", "3"}, {"C", "4"}}));
  EXPECT_THAT(merged.grants,
              ElementsAre(Grant{"x", "/x", kRo}, Grant{"z", "/y", kRw}, Grant{"q", "/q", kCopy}));
  EXPECT_THAT(merged.outputs, ElementsAre(Output{"/r", "r"}, Output{"/t", "s"}));
  EXPECT_EQ(merged.limits.pids, std::nullopt);
  EXPECT_EQ(merged.limits.cpu_milli, 500u);
  EXPECT_EQ(merged.limits.memory, 1ull << 30);
}

TEST(Merge, FlagsThatContradictEachOtherStayForValidation) {
  SpecPatch flags;
  flags.grants = {{"a", "/x", kRo}, {"b", "/x", kRw}};
  EXPECT_THAT(refusal(SandboxSpec::validate(merge({}, flags))), HasSubstr("a second time"));
}

}  // namespace
}  // namespace caisson::policy
