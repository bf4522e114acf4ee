#include "policy/server_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

namespace caisson::policy {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

constexpr const char* kEverything = R"(
listen: "[::1]:3001"
tls:
  listen: 0.0.0.0:8443
  domain: e2b.example.com:8443
  certificate: /etc/caisson/tls.crt
  key: /etc/caisson/tls.key
state_directory: /srv/caisson
run_directory: /run/other
user: "990:991"
sandbox_group: /x.slice/boxes
default_image: tools:2
templates: {base: base, py-3: registry.example.com/python:3.13}
limits:
  default: {cpus: 0.5, memory: 256MiB, disk: 2GB, pids: 100, lifetime: 90s}
  maximum: {cpus: 4, memory: 1GiB, disk: unlimited, pids: 1k, lifetime: unlimited, profile: browser}
pool: {base: 4}
pool_in_use: 6
builds:
  at_once: 2
  team_at_once: 1
  team_most: 7
  time: 10m
  upload: 5MiB
  uploads: 1GiB
  cache: 2GiB
  cache_for: 1d
  kept: 3
  kept_for: unlimited
  hosts: ["deb.example.com", "registry.example.com:443"]
  registries: ["registry.example.com:5000"]
max_sandboxes: 50
max_paused: 0
max_connections: 60
max_snapshots: 70
max_templates: 80
threads: 2
log_level: debug
)";

TEST(ServerConfig, IsRead) {
  const auto config = parse_server_config(kEverything);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->listen, (ListenAddress{"::1", 3001}));
  EXPECT_EQ(config->tls.listen, (ListenAddress{"0.0.0.0", 8443}));
  EXPECT_EQ(config->tls.domain, "e2b.example.com:8443");
  EXPECT_EQ(config->tls.certificate, "/etc/caisson/tls.crt");
  EXPECT_EQ(config->tls.key, "/etc/caisson/tls.key");
  EXPECT_FALSE(config->tls.dev);
  EXPECT_EQ(config->state_directory, "/srv/caisson");
  EXPECT_EQ(config->run_directory, "/run/other");
  EXPECT_EQ(config->user, "990:991");
  EXPECT_EQ(config->sandbox_group, "/x.slice/boxes");
  EXPECT_EQ(config->default_image, "tools:2");
  EXPECT_EQ(config->templates.at("py-3"), "registry.example.com/python:3.13");
  EXPECT_EQ(config->defaults, (ServedLimits{500, 256ull << 20, 2'000'000'000, 100, 90'000}));
  EXPECT_EQ(config->maxima, (ServedLimits{4000, 1ull << 30, {}, 1000, {}}));
  EXPECT_EQ(config->most_profile, SyscallProfile::kBrowser);
  EXPECT_EQ(config->most_privileges, Privileges::kSudo);
  EXPECT_EQ(config->pool.at("base"), 4u);
  EXPECT_EQ(config->pool_in_use, 6u);
  EXPECT_EQ(config->builds, (BuildConfig{.at_once = 2,
                                         .team_at_once = 1,
                                         .team_most = 7,
                                         .time_ms = 600'000,
                                         .upload = 5ull << 20,
                                         .uploads = 1ull << 30,
                                         .cache = 2ull << 30,
                                         .cache_ms = 86'400'000,
                                         .kept = 3,
                                         .kept_ms = {},
                                         .hosts = {"deb.example.com", "registry.example.com:443"},
                                         .registries = {"registry.example.com:5000"}}));
  EXPECT_EQ(config->max_sandboxes, 50u);
  EXPECT_EQ(config->max_paused, 0u);
  EXPECT_EQ(config->max_connections, 60u);
  EXPECT_EQ(config->max_snapshots, 70u);
  EXPECT_EQ(config->max_templates, 80u);
  EXPECT_EQ(config->threads, 2u);
  EXPECT_EQ(config->log_level, LogLevel::kDebug);
  EXPECT_TRUE(validate_server_config(*config));
}

TEST(ServerConfig, AnEmptyFileIsTheDefaults) {
  EXPECT_EQ(parse_server_config("").value(), ServerConfig());
  EXPECT_EQ(parse_server_config("{}").value(), ServerConfig());
  EXPECT_TRUE(validate_server_config(ServerConfig()));
}

TEST(ServerConfig, WhatIsPrintedIsReadAsTheSame) {
  ServerConfig dev;
  dev.tls = {.listen = ListenAddress{"127.0.0.1", 0},
             .domain = "a.test",
             .certificate = {},
             .key = {},
             .dev = true};
  dev.state_directory = "/odd ü\"\n'#: path";
  dev.templates = {{"no", "yes"}, {"1", "base"}};
  dev.most_privileges = Privileges::kNone;
  for (const ServerConfig& config :
       {ServerConfig(), dev, parse_server_config(kEverything).value()}) {
    const std::string printed = print_server_config(config);
    const auto again = parse_server_config(printed);
    ASSERT_TRUE(again) << printed << again.error().message();
    EXPECT_EQ(*again, config) << printed;
  }
  EXPECT_THAT(
      print_server_config(ServerConfig()),
      AllOf(HasSubstr("listen: \"127.0.0.1:3000\"\ntls:\n  dev: false\n"),
            HasSubstr("limits:\n  default:\n    cpus: 2\n"),
            HasSubstr("    lifetime: 5m\n  maximum:\n    cpus: 8\n"), HasSubstr("\npool: {}\n")));
}

TEST(ServerConfig, IsRefusedWithKeyFoundAndAllowed) {
  struct Row {
    const char *text, *key, *found, *allowed;
  };
  for (const Row& row : {
           Row{"lisen: a", "lisen", "unknown key", "perhaps listen"},
           Row{"tls: {cert: a}", "tls.cert", "unknown key", "certificate"},
           Row{"limits: {default: {ram: 1}}", "limits.default.ram", "unknown key", "memory"},
           Row{"limits: {defaults: {}}", "limits.defaults", "unknown key", "default"},
           Row{"limits.default: {}", "limits.default", "unknown key", "limits"},
           Row{"[a]", "configuration", "a list", "listen"},
           Row{"tls: true", "tls", "true", "a mapping"},
           Row{"limits: {default: [1]}", "limits.default", "a list", "a mapping"},
           Row{"listen: localhost:80", "listen", "localhost:80", "ADDRESS:PORT"},
           Row{"listen: 3000", "listen", "3000", "ADDRESS:PORT"},
           Row{"listen: 1.2.3.4:65536", "listen", "65536", "65535"},
           Row{"listen: '1.2.3.4:'", "listen", "1.2.3.4:", "ADDRESS"},
           Row{"listen: '::1:80'", "listen", "::1:80", "[::1]:3000"},
           Row{"listen: '[1.2.3.4]:80'", "listen", "[1.2.3.4]", "ADDRESS"},
           Row{"listen: '[]:80'", "listen", "[]:80", "ADDRESS"},
           Row{"listen:", "listen", "nothing", "ADDRESS"},
           Row{"tls: {domain: 'a b'}", "tls.domain", "a b", "HOST"},
           Row{"tls: {key: tls.key}", "tls.key", "tls.key", "absolute"},
           Row{"tls: {dev: maybe}", "tls.dev", "maybe", "true or false"},
           Row{"tls: {listen: {}}", "tls.listen", "a mapping", "ADDRESS"},
           Row{"state_directory: /a/../b", "state_directory", "/a/../b", ".."},
           Row{"default_image: [a]", "default_image", "a list", "NAME"},
           Row{"templates: [a]", "templates", "a list", "a mapping"},
           Row{"templates: {A: b}", "templates.A", "no template", "a-z"},
           Row{"templates: {a: 'B B'}", "templates.a", "B B", "NAME"},
           Row{"templates: {a: b, a: c}", "templates.a", "twice", "once"},
           Row{"pool: {a: 0}", "pool.a", "\"0\"", "from 1"},
           Row{"pool: {a: -1}", "pool.a", "-1", "from 1"},
           Row{"pool: 5", "pool", "5", "a mapping"},
           Row{"limits: {default: {memory: 0}}", "limits.default.memory", "zero", "unlimited"},
           Row{"limits: {default: {memory: 1k}}", "limits.default.memory", "1k", "8MiB to"},
           Row{"limits: {maximum: {lifetime: 5}}", "limits.maximum.lifetime", "no unit", "30s"},
           Row{"limits: {maximum: {cpus: [1]}}", "limits.maximum.cpus", "a list", "processors"},
           Row{"builds: {at_once: 0}", "builds.at_once", "0", "from 1 to 256"},
           Row{"builds: {time: 5}", "builds.time", "no unit", "30s"},
           Row{"builds: {hosts: a}", "builds.hosts", "a", "a list of HOST"},
           Row{"builds: {hosts: ['a b']}", "builds.hosts[0]", "a b", "HOST:PORT"},
           Row{"builds: {registries: [x/y]}", "builds.registries[0]", "x/y", "HOST"},
           Row{"max_sandboxes: 1.5", "max_sandboxes", "1.5", "whole number"},
           Row{"limits: {maximum: {profile: all}}", "limits.maximum.profile", "all", "browser"},
           Row{"limits: {maximum: {privileges: all}}", "limits.maximum.privileges", "all", "sudo"},
           Row{"max_connections: 0", "max_connections", "0", "from 1 to 1000000"},
           Row{"threads: ''", "threads", "\"\"", "from 1 to 256"},
           Row{"user: -x", "user", "-x", "UID:GID"},
           Row{"user: a b", "user", "a b", "NAME"},
           Row{"sandbox_group: x/../y", "sandbox_group", "x/../y", "absolute"},
           Row{"log_level: loud", "log_level", "loud", "debug, info, warn or error"},
           Row{"log_level: {}", "log_level", "a mapping", "debug"},
           Row{"threads: 1\nthreads: 2", "threads", "twice", "once"},
           Row{"a: &b c", "configuration", "anchor", "YAML"},
       }) {
    const auto config = parse_server_config(row.text);
    ASSERT_FALSE(config) << row.text;
    EXPECT_EQ(config.error().code(), Code::kInvalidArgument);
    EXPECT_THAT(config.error().message(),
                AllOf(HasSubstr(row.key), HasSubstr(row.found), HasSubstr("; allowed is "),
                      HasSubstr(row.allowed)));
  }
}

TEST(ServerConfig, LinesAreNamed) {
  EXPECT_THAT(parse_server_config("listen: 127.0.0.1:1\ntls:\n  dev: x").error().message(),
              StartsWith("line 3: tls.dev: "));
  EXPECT_THAT(parse_server_config("limits:\n  default:\n    cpus: x").error().message(),
              StartsWith("line 3: limits.default.cpus: "));
}

TEST(ServerConfig, ValuesMustGoTogether) {
  struct Row {
    const char *text, *key, *allowed;
  };
  constexpr const char* kTls = "tls: {listen: 127.0.0.1:1, domain: a.test, dev: true}\n";
  ASSERT_TRUE(validate_server_config(parse_server_config(kTls).value()));
  for (const Row& row : {
           Row{"tls: {domain: a.test}", "tls.listen", "other keys"},
           Row{"tls: {dev: true}", "tls.listen", "other keys"},
           Row{"tls: {listen: 127.0.0.1:1, dev: true}", "tls.domain", "domain"},
           Row{"tls: {listen: 127.0.0.1:1, domain: a.test}", "tls.certificate", "tls.dev"},
           Row{"tls: {listen: 127.0.0.1:1, domain: a.test, certificate: /a}", "tls.key", "key"},
           Row{"tls: {listen: 127.0.0.1:1, domain: a.test, key: /a}", "tls.certificate", "file"},
           Row{"tls: {listen: 127.0.0.1:1, domain: a.test, key: /a, dev: true}", "tls.dev", "one"},
           Row{"tls: {listen: 127.0.0.1:3000, domain: a.test, dev: true}", "tls.listen", "another"},
           Row{"limits: {default: {cpus: 9}}", "limits.default.cpus", "8 at most"},
           Row{"limits: {maximum: {privileges: none}}\npool: {base: 1}", "pool", "sudo"},
           Row{"limits: {default: {memory: unlimited}}", "limits.default.memory", "8GiB at most"},
           Row{"limits: {default: {disk: 1TiB}}", "limits.default.disk", "16GiB at most"},
           Row{"limits: {maximum: {pids: 10}}", "limits.default.pids", "10 at most"},
           Row{"limits: {maximum: {lifetime: 1m}}", "limits.default.lifetime", "1m at most"},
           Row{"pool: {a: 600, b: 600}", "pool", "1000 at most"},
       }) {
    const auto config = parse_server_config(row.text);
    ASSERT_TRUE(config) << row.text << config.error().message();
    const auto valid = validate_server_config(*config);
    ASSERT_FALSE(valid) << row.text;
    EXPECT_THAT(valid.error().message(),
                AllOf(StartsWith(std::string(row.key) + ": found "), HasSubstr(row.allowed)));
  }
}

TEST(ServerConfig, EverySettingHasItsFlagAndVariableAndCanBeSet) {
  std::set<std::string> flags, variables;
  for (const ServerSetting& setting : server_settings()) {
    EXPECT_THAT(std::string(setting.flag), MatchesRegex("--[a-z0-9-]+"));
    EXPECT_THAT(server_variable(setting), MatchesRegex("CAISSON_SERVE_[A-Z0-9_]+"));
    EXPECT_TRUE(flags.insert(std::string(setting.flag)).second) << setting.flag;
    EXPECT_TRUE(variables.insert(server_variable(setting)).second) << setting.flag;
    EXPECT_FALSE(setting.value.empty());
    EXPECT_FALSE(setting.help.empty());
    ServerConfig config;
    const auto set = set_server_value(config, setting.key, "\n", "--x");
    ASSERT_FALSE(set);
    EXPECT_THAT(set.error().message(), StartsWith("--x: found "));
  }
  ServerConfig config;
  ASSERT_TRUE(set_server_value(config, "limits.maximum.cpus", "16", "--max-cpus"));
  EXPECT_EQ(config.maxima.cpu_milli, 16'000);
  for (const char* key : {"templates", "tls", "nothing", ""}) {
    EXPECT_FALSE(set_server_value(config, key, "a", "--x")) << key;
  }
}

class LoadServerConfig : public ::testing::Test {
 protected:
  LoadServerConfig() {
    char name[] = "/tmp/caisson-config-XXXXXX";
    VERIFY(::mkdtemp(name) != nullptr);
    folder_ = name;
  }
  ~LoadServerConfig() override {
    for (const char* variable : kVariables) ::unsetenv(variable);
    std::filesystem::remove_all(folder_);
  }
  std::string write(const std::string& text) {
    std::ofstream(folder_ + "/caisson.yaml") << text;
    return folder_ + "/caisson.yaml";
  }
  static constexpr std::array kVariables = {"CAISSON_SERVE_LISTEN", "CAISSON_SERVE_THREADS",
                                            "CAISSON_STATE_DIR", "CAISSON_RUN_DIR"};
  std::string folder_;
};

TEST_F(LoadServerConfig, FlagsGoBeforeTheEnvironmentAndThatBeforeTheFile) {
  const std::string path =
      write("listen: 127.0.0.1:1\nthreads: 1\nmax_sandboxes: 1\nlog_level: warn\n");
  ::setenv("CAISSON_SERVE_LISTEN", "127.0.0.1:2", 1);
  ::setenv("CAISSON_SERVE_THREADS", "2", 1);
  const GivenFlag flags[] = {{"--listen", "127.0.0.1:3"}, {"--max-sandboxes", "3"}};
  const auto config = load_server_config(path, flags);
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->listen.port, 3);
  EXPECT_EQ(config->threads, 2u);
  EXPECT_EQ(config->max_sandboxes, 3u);
  EXPECT_EQ(config->log_level, LogLevel::kWarn);
}

TEST_F(LoadServerConfig, DirectoriesAreFilledIn) {
  ::setenv("CAISSON_STATE_DIR", "/srv/state", 1);
  ::setenv("CAISSON_RUN_DIR", "/srv/run", 1);
  const auto config = load_server_config(write("run_directory: /other\n"), {});
  EXPECT_EQ(config->state_directory, "/srv/state");
  EXPECT_EQ(config->run_directory, "/other");
}

TEST_F(LoadServerConfig, AFileThatIsNamedMustBeThere) {
  const auto config = load_server_config(folder_ + "/none.yaml", {});
  ASSERT_FALSE(config);
  EXPECT_THAT(config.error().message(), HasSubstr("none.yaml"));
}

TEST_F(LoadServerConfig, ErrorsNameTheirPlace) {
  EXPECT_THAT(load_server_config(write("odd: 1\n"), {}).error().message(),
              HasSubstr(folder_ + "/caisson.yaml: line 1: odd: "));
  const std::string path = write("");
  const GivenFlag wrong_value[] = {{"--threads", "many"}};
  EXPECT_THAT(load_server_config(path, wrong_value).error().message(),
              StartsWith("--threads: found \"many\""));
  const GivenFlag unknown[] = {{"--templates", "a"}};
  EXPECT_THAT(load_server_config(path, unknown).error().message(), StartsWith("--templates"));
  const GivenFlag together[] = {{"--default-cpus", "9"}};
  EXPECT_THAT(load_server_config(path, together).error().message(),
              StartsWith("limits.default.cpus"));
  ::setenv("CAISSON_SERVE_THREADS", "0", 1);
  EXPECT_THAT(load_server_config(path, {}).error().message(),
              StartsWith("CAISSON_SERVE_THREADS: found \"0\""));
}

}  // namespace
}  // namespace caisson::policy
