#include "policy/document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "policy/random_spec.h"

namespace caisson::policy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::string_view kEverything = R"(
# A comment.
image: base
wall: namespace
emulation: deny
command: [python3, main.py, -c, "x y", 10, true]
entrypoint: [env, A=1]
env: {LANG: C.UTF-8, DEBUG: 1, EMPTY: ""}
user: user
privileges: sudo
profile: browser
on_refusal: kill
workdir: /home/user
hostname: box
layer: quota
files:
  - {from: ./src, to: /home/user/src, mode: rw}
  - {from: data.csv, to: /data.csv}
  - from: lib
    to: /lib2
    mode: copy
  - {out: /home/user/report.html, to: ./report.html}
limits: {cpus: 1.5, memory: 1GiB, pids: unlimited, disk: 2GB, inodes: 10k, open_files: 64,
         output: 4096, timeout: 2m, cpu_time: 500ms, io_read: 10MiB/s, io_write: 1MiB,
         io_read_ops: unlimited, io_write_ops: 500/s}
require_hard_limits: true
network: deny
secrets: []
)";

SpecValues everything() {
  SpecValues v;
  v.image = "base";
  v.wall = WallKind::kNamespace;
  v.command = {"python3", "main.py", "-c", "x y", "10", "true"};
  v.entrypoint = {"env", "A=1"};
  v.env = {{"LANG", "C.UTF-8"}, {"DEBUG", "1"}, {"EMPTY", ""}};
  v.user = "user";
  v.privileges = Privileges::kSudo;
  v.profile = SyscallProfile::kBrowser;
  v.on_refusal = OnRefusal::kKill;
  v.workdir = "/home/user";
  v.hostname = "box";
  v.layer = LayerKind::kQuota;
  v.grants = {{"./src", "/home/user/src", GrantMode::kReadWrite},
              {"data.csv", "/data.csv", GrantMode::kReadOnly},
              {"lib", "/lib2", GrantMode::kCopy}};
  v.outputs = {{"/home/user/report.html", "./report.html"}};
  v.limits = {.cpu_milli = 1500,
              .memory = 1ull << 30,
              .pids = std::nullopt,
              .disk = 2'000'000'000,
              .inodes = 10'000,
              .open_files = 64,
              .output = 4096,
              .timeout_ms = 120'000,
              .cpu_time_ms = 500,
              .io_read = 10ull << 20,
              .io_write = 1ull << 20,
              .io_read_ops = std::nullopt,
              .io_write_ops = 500};
  v.require_hard_limits = true;
  return v;
}

TEST(Document, ReadsEveryKeyFromYaml) {
  const auto values = parse_spec(kEverything, Format::kYaml);
  ASSERT_TRUE(values) << values.error().message();
  EXPECT_EQ(*values, everything());
}

TEST(Document, ReadsEveryKeyFromJson) {
  const auto values = parse_spec(R"({
    "image": "base", "wall": "namespace", "emulation": "deny",
    "command": ["python3", "main.py", "-c", "x y", "10", "true"], "entrypoint": ["env", "A=1"],
    "env": {"LANG": "C.UTF-8", "DEBUG": "1", "EMPTY": ""}, "user": "user",
    "privileges": "sudo", "profile": "browser", "on_refusal": "kill", "workdir": "/home/user", "hostname": "box",
    "layer": "quota",
    "files": [{"from": "./src", "to": "/home/user/src", "mode": "rw"},
              {"from": "data.csv", "to": "/data.csv"},
              {"from": "lib", "to": "/lib2", "mode": "copy"},
              {"out": "/home/user/report.html", "to": "./report.html"}],
    "limits": {"cpus": 1.5, "memory": 1073741824, "pids": "unlimited", "disk": "2GB",
               "inodes": 10000, "open_files": 64, "output": "4096", "timeout": "2m",
               "cpu_time": "500ms", "io_read": "10MiB/s", "io_write": 1048576,
               "io_read_ops": "unlimited", "io_write_ops": 500},
    "require_hard_limits": true, "network": "deny", "secrets": []})",
                                 Format::kJson);
  ASSERT_TRUE(values) << values.error().message();
  EXPECT_EQ(*values, everything());
}

TEST(Document, WhatIsNotSaidHasItsDefault) {
  for (const std::string_view text : {"", "\n", "# nothing\n", "{}", "---\n{}\n...\n"}) {
    const auto values = parse_spec(text, Format::kYaml);
    ASSERT_TRUE(values) << text << values.error().message();
    EXPECT_EQ(*values, SpecValues()) << text;
  }
  EXPECT_EQ(*parse_spec("{}", Format::kJson), SpecValues());
  EXPECT_EQ(*parse_spec("\xef\xbb\xbf{}", Format::kYaml), SpecValues());
}

TEST(Document, TextIsTakenAsItIsWritten) {
  const auto values = parse_spec(
      "command: [010, 0x1f, 1e3, yes, 2020-01-01, 'null', \"a\\tb\", 'it''s', {base64: /w==}]\n"
      "env:\n  A: 1.50\n  B: |\n    two\n    lines\n",
      Format::kYaml);
  ASSERT_TRUE(values) << values.error().message();
  EXPECT_THAT(values->command, ElementsAre("010", "0x1f", "1e3", "yes", "2020-01-01", "null",
                                           "a\tb", "it's", "\xff"));
  EXPECT_EQ(values->env.at("A"), "1.50");
  EXPECT_EQ(values->env.at("B"), "two\nlines\n");
}

struct Case {
  std::string text;
  std::string key;  // with its line, where there is one
  std::string found;
  std::string allowed;
};

void expect_refused(const std::vector<Case>& cases, Format format) {
  for (const Case& c : cases) {
    const auto values = parse_spec(c.text, format);
    ASSERT_FALSE(values) << c.text;
    const std::string& message = values.error().message();
    EXPECT_THAT(message, StartsWith(c.key + ": ")) << c.text;
    const std::size_t allowed = message.find("; allowed ");
    ASSERT_NE(allowed, std::string::npos) << message;
    EXPECT_THAT(message.substr(0, allowed), HasSubstr("found "));
    EXPECT_THAT(message.substr(0, allowed), HasSubstr(c.found));
    EXPECT_THAT(message.substr(allowed), HasSubstr(c.allowed));
    EXPECT_EQ(values.error().code(), Code::kInvalidArgument);
    for (const char byte : message) EXPECT_GE(static_cast<unsigned char>(byte), 0x20) << message;
  }
}

TEST(Document, RefusesYamlWithKeyFoundAndAllowed) {
  std::string deep = "env: ";
  for (int i = 0; i < 20; ++i) deep += "[";
  deep += "a" + std::string(20, ']');
  std::string many = "command: [";
  for (int i = 0; i < 20'001; ++i) many += "a,";
  many += "]";
  expect_refused(
      {
          {"[a]", "line 1: spec", "a list", "a mapping with the keys image, wall"},
          {"text", "line 1: spec", "\"text\"", "a mapping"},
          {"imagee: base", "line 1: imagee", "an unknown key", "perhaps image is meant"},
          {"\nfoo bar: 1", "line 2: [\"foo bar\"]", "an unknown key", "image, wall"},
          {"<<: {image: a}", "line 1: [\"<<\"]", "an unknown key", "image, wall"},
          {"image: base\nimage: host", "line 2: image", "the key twice", "each key once"},
          {"image: [a]", "line 1: image", "a list", "a text"},
          {"image:", "line 1: image", "nothing", "a text"},
          {"image: ~", "line 1: image", "nothing", "a text"},
          {"image: ''", "line 1: image", "an empty text", "leave the key away"},
          {"user: ''", "line 1: user", "an empty text", "leave the key away"},
          {"workdir: ''", "line 1: workdir", "an empty text", "leave the key away"},
          {"hostname: {a: b}", "line 1: hostname", "a mapping", "a text"},
          {"hostname: {base64: '=='}", "line 1: hostname.base64", "\"==\"", "base64"},
          {"hostname: {base64: []}", "line 1: hostname.base64", "a list", "base64"},
          {"wall: vm", "line 1: wall", "\"vm\"", "auto, namespace, gvisor or microvm"},
          {"wall: [auto]", "line 1: wall", "a list", "auto, namespace"},
          {"emulation: yes", "line 1: emulation", "\"yes\"", "deny or allow"},
          {"privileges: root", "line 1: privileges", "\"root\"", "none or sudo"},
          {"profile: x", "line 1: profile", "\"x\"", "default, browser or debug"},
          {"on_refusal: log", "line 1: on_refusal", "\"log\"", "continue or kill"},
          {"on_refusal: [kill]", "line 1: on_refusal", "a list", "continue or kill"},
          {"layer: disk", "line 1: layer", "\"disk\"", "tmpfs or quota"},
          {"command: python3 x", "line 1: command", "\"python3 x\"", "a list such as"},
          {"command: {a: b}", "line 1: command", "a mapping", "a list such as"},
          {"command:\n- a\n- [b]", "line 3: command[1]", "a list", "a text"},
          {"command: [a, ]\nenv: [A=1]", "line 2: env", "a list", "a mapping such as"},
          {"entrypoint: sh", "line 1: entrypoint", "\"sh\"", "a list such as"},
          {"entrypoint: [[a]]", "line 1: entrypoint[0]", "a list", "a text"},
          {"command: [a, ~]", "line 1: command[1]", "nothing", "write \"\""},
          {"env: {A: }", "line 1: env.A", "nothing", "a text"},
          {"env: {A: 1, A: 2}", "line 1: env.A", "the key twice", "each key once"},
          {"env: {'a b': []}", "line 1: env[\"a b\"]", "a list", "a text"},
          {"env: {[a]: b}", "spec", "a key that is no text", "one YAML mapping"},
          {"env: {{a: b}: c}", "spec", "a key that is no text", "one YAML mapping"},
          {"env: {null: c}", "spec", "a key that is no text", "one YAML mapping"},
          {"files: {}", "line 1: files", "a mapping", "a list such as"},
          {"files: [a]", "line 1: files[0]", "\"a\"", "{from: …"},
          {"files: [{to: /a}]", "line 1: files[0]", "neither from nor out", "{from: …"},
          {"files: [{from: a, out: /b, to: c}]", "line 1: files[0]", "both from and out", "{from"},
          {"files: [{from: a}]", "line 1: files[0].to", "nothing", "the path inside"},
          {"files: [{out: /a}]", "line 1: files[0].to", "nothing", "a path of this host"},
          {"files: [{out: /a, to: b, mode: ro}]", "line 1: files[0].mode", "ro", "no mode"},
          {"files: [{from: a, to: /a, mode: w}]", "line 1: files[0].mode", "\"w\"",
           "ro, rw or copy"},
          {"files:\n- {from: a, to: /a}\n- {form: a}", "line 3: files[1].form", "an unknown key",
           "perhaps from is meant"},
          {"files: [{from: a, from: b}]", "line 1: files[0].from", "the key twice", "once"},
          {"files: [{from: '', to: /a}]", "line 1: files[0].from", "an empty text", "a path"},
          {"limits: 5", "line 1: limits", "\"5\"", "cpus, memory"},
          {"limits: {mem: 5}", "line 1: limits.mem", "an unknown key", "perhaps memory is meant"},
          {"limits:\n  disk: 1GiB\n  memory: 64XB", "line 3: limits.memory", "\"64XB\"", "a size"},
          {"limits: {cpus: 0}", "line 1: limits.cpus", "zero", "unlimited"},
          {"limits: {cpus: [1]}", "line 1: limits.cpus", "a list", "a number of processors"},
          {"limits: {pids: }", "line 1: limits.pids", "nothing", "a count"},
          {"limits: {timeout: 30}", "line 1: limits.timeout", "no unit", "a duration"},
          {"limits: {io_write: fast}", "line 1: limits.io_write", "\"fast\"", "bytes a second"},
          {"limits: {io_ops: 5}", "line 1: limits.io_ops", "an unknown key", "io_read_ops"},
          {"limits: {cpu_time: 1, cpu_time: 1}", "line 1: limits.cpu_time", "\"1\"", "a duration"},
          {"limits: {pids: 2, pids: 2}", "line 1: limits.pids", "the key twice", "once"},
          {"require_hard_limits: 'true'", "line 1: require_hard_limits", "\"true\"",
           "true or false"},
          {"require_hard_limits: yes", "line 1: require_hard_limits", "\"yes\"", "true or false"},
          {"network: allow", "line 1: network", "\"allow\"", "deny, allow-public or a mapping"},
          {"network: {allow: [a.example.com]}", "line 1: network.allow", "an unknown key", "rules"},
          {"secrets: [a]", "line 1: secrets", "a list that is not empty",
           "secrets stand below network"},
          {"secrets: {a: b}", "line 1: secrets", "a mapping", "an empty list"},
          {"image: &a base", "spec", "an anchor at line 1", "without anchors"},
          {"image: base\nuser: *a", "spec", "line 2", "without anchors"},
          {"a: &a [x]\nb: *a", "spec", "an anchor at line 1", "without anchors"},
          {"image: !!str base", "spec", "the tag \"tag:yaml.org,2002:str\"", "tags"},
          {"image: !x base", "spec", "the tag \"!x\"", "tags"},
          {"command: !x [a]", "spec", "the tag", "tags"},
          {"image: a\n---\nimage: b", "spec", "a second document at line", "one YAML mapping"},
          {"image: [", "spec", "broken YAML at line", "one YAML mapping"},
          {"image: \"a", "spec", "broken YAML at line", "one YAML mapping"},
          {"image: a\n\tb: c", "spec", "broken YAML at line", "one YAML mapping"},
          {"image: \"\\q\"", "spec", "broken YAML at line", "one YAML mapping"},
          {"%YAML 9.1\n---\n{}", "spec", "broken YAML", "one YAML mapping"},
          {"image: base\nuser: \xff", "spec", "not UTF-8 at line 2", "UTF-8"},
          {"image: base\n\x04wall: vm", "spec", "a control character at line 2", "UTF-8"},
          {std::string("image: \0", 8), "spec", "a control character", "UTF-8"},
          {std::string("\xff\xfei\0", 4), "spec", "not UTF-8", "UTF-8"},
          {deep, "spec", "nesting deeper than 16 levels", "one YAML mapping"},
          {many, "spec", "more than 20000 values", "one YAML mapping"},
          {std::string((1 << 20) + 1, ' '), "spec", "1048577 bytes", "1048576 bytes at most"},
      },
      Format::kYaml);
}

TEST(Document, RefusesJsonWithKeyFoundAndAllowed) {
  expect_refused(
      {
          {"", "spec", "an incomplete JSON text", "one JSON value"},
          {"null", "spec", "nothing", "a mapping"},
          {"[]", "spec", "a list", "a mapping"},
          {"{\"image\": 5}", "image", "the number 5", "a text (in quotes)"},
          {"{\"image\": true}", "image", "true", "a text (in quotes)"},
          {"{\"image\": null}", "image", "nothing", "a text"},
          {"{\"command\": [\"a\", 1.5]}", "command[1]", "the number 1.5", "a text (in quotes)"},
          {"{\"env\": {\"A\": false}}", "env.A", "false", "a text"},
          {"{\"limits\": {\"memory\": true}}", "limits.memory", "true", "a size"},
          {"{\"limits\": {\"memory\": -5}}", "limits.memory", "a negative amount", "a size"},
          {"{\"limits\": {\"pids\": 2.5}}", "limits.pids", "not a whole amount", "a count"},
          {"{\"limits\": {\"memory\": 1e40}}", "limits.memory", "\"1e+40\"", "a size"},
          {"{\"limits\": {\"timeout\": 30}}", "limits.timeout", "no unit", "a duration"},
          {"{\"limits\": {\"memory\": 1, \"memory\": 2}}", "spec: limits.memory", "twice", "once"},
          {"{\"files\": [{\"mode\": 1, \"from\": \"a\"}]}", "files[0].mode", "the number 1",
           "ro, rw or copy"},
          {"{\"require_hard_limits\": \"true\"}", "require_hard_limits", "\"true\"",
           "true or false"},
          {"{\"network\": {\"rules\": {}}}", "network.rules", "a mapping", "a list"},
          {"{\"secrets\": [1]}", "secrets", "not empty", "network.secrets"},
          {"{\"secrets\": null}", "secrets", "nothing", "an empty list"},
          {"{} {}", "spec", "behind the end", "one JSON value"},
          {std::string(17, '[') + std::string(17, ']'), "spec", "nested deeper than 16 levels",
           "at most"},
          {std::string((1 << 20) + 1, ' '), "spec", "1048577 bytes", "at most 1048576"},
      },
      Format::kJson);
}

TEST(Document, PrintsTheCanonicalForm) {
  SpecValues values = everything();
  values.env["null"] = "\xff";
  const auto spec = SandboxSpec::validate(values);
  ASSERT_TRUE(spec) << spec.error().message();
  EXPECT_EQ(print_spec(*spec, Format::kYaml), R"(image: base
wall: namespace
emulation: deny
command: [python3, main.py, "-c", "x y", "10", "true"]
entrypoint: [env, "A=1"]
env:
  DEBUG: "1"
  EMPTY: ""
  LANG: C.UTF-8
  "null": {base64: "/w=="}
user: user
privileges: sudo
profile: browser
on_refusal: kill
workdir: /home/user
hostname: box
files:
  - {from: "./src", to: /home/user/src, mode: rw}
  - {from: data.csv, to: /data.csv, mode: ro}
  - {from: lib, to: /lib2, mode: copy}
  - {out: /home/user/report.html, to: "./report.html"}
layer: quota
limits:
  cpus: 1.5
  memory: 1GiB
  pids: unlimited
  disk: 2GB
  inodes: 10k
  open_files: 64
  output: 4KiB
  timeout: 2m
  cpu_time: 500ms
  io_read: 10MiB/s
  io_write: 1MiB/s
  io_read_ops: unlimited
  io_write_ops: 500/s
require_hard_limits: true
network: deny
secrets: []
)");
}

TEST(Document, ThePrintedDefaultIsTheDefault) {
  const auto spec = SandboxSpec::validate({});
  EXPECT_THAT(print_spec(*spec, Format::kYaml), HasSubstr("command: []\nenv: {}\n"));
  EXPECT_THAT(print_spec(*spec, Format::kJson), HasSubstr("\"command\": [],"));
}

TEST(Document, EverySpecComesBackFromItsPrintedForm) {
  const char* given = std::getenv("CAISSON_TEST_SEED");
  const std::uint64_t seed =
      given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  SCOPED_TRACE("CAISSON_TEST_SEED=" + std::to_string(seed));
  RandomSpec random(seed);
  for (int i = 0; i < 2000; ++i) {
    const auto spec = SandboxSpec::validate(random.make());
    ASSERT_TRUE(spec) << spec.error().message();
    for (const Format format : {Format::kYaml, Format::kJson}) {
      const std::string text = print_spec(*spec, format);
      const auto values = parse_spec(text, format);
      ASSERT_TRUE(values) << values.error().message() << "\n" << text;
      ASSERT_EQ(*values, spec->values()) << text;
    }
  }
}

}  // namespace
}  // namespace caisson::policy
