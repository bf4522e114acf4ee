#include "policy/spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "policy/complain.h"
#include "policy/inside_path.h"
#include "policy/limits.h"
#include "policy/syntax.h"

namespace caisson::policy {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr GrantMode kRo = GrantMode::kReadOnly;
constexpr GrantMode kRw = GrantMode::kReadWrite;
constexpr GrantMode kCopy = GrantMode::kCopy;

std::string outcome(const SpecValues& values) {
  const auto spec = SandboxSpec::validate(values);
  if (!spec.has_value()) return spec.error().message();
  EXPECT_EQ(spec->values(), values);
  return "accepted";
}

TEST(Spec, TheDefaultIsValid) {
  EXPECT_EQ(outcome({}), "accepted");
  // What filling the default disk must never do is to meet the memory limit.
  EXPECT_LT(*Limits().disk, *Limits().memory);
}

struct Case {
  std::function<void(SpecValues&)> change;
  std::string key;
  std::string found;
  std::string allowed;
};

TEST(Spec, RefusesWithKeyFoundAndAllowed) {
  const std::vector<Case> cases = {
      {[](auto& v) { v.image = "../etc"; }, "image", "\"../etc\"", "host, NAME"},
      {[](auto& v) { v.image = "Base"; }, "image", "\"Base\"", "lower-case"},
      {[](auto& v) { v.wall = static_cast<WallKind>(4); }, "wall", "the number 4",
       "auto, namespace, gvisor or microvm"},
      {[](auto& v) { v.privileges = static_cast<Privileges>(2); }, "privileges", "the number 2",
       "none or sudo"},
      {[](auto& v) { v.profile = static_cast<SyscallProfile>(3); }, "profile", "the number 3",
       "default, browser or debug"},
      {[](auto& v) { v.on_refusal = static_cast<OnRefusal>(2); }, "on_refusal", "the number 2",
       "continue or kill"},
      {[](auto& v) { v.layer = static_cast<LayerKind>(2); }, "layer", "the number 2",
       "tmpfs or quota"},
      {[](auto& v) { v.network.emplace().rules = {{}}; }, "network.rules[0]",
       "neither hosts nor cidrs", "at least one"},
      {[](auto& v) { v.grants = {{"a", "/a", static_cast<GrantMode>(3)}}; },
       "files[from=\"a\"].mode", "the number 3", "ro, rw or copy"},
      {[](auto& v) {
         v.allow_emulation = true;
         v.wall = WallKind::kNamespace;
       },
       "emulation", "allow with wall: namespace", "wall: auto or wall: microvm"},

      {[](auto& v) { v.command = {""}; }, "command[0]", "an empty text", "program"},
      {[](auto& v) { v.command = {"a", std::string("b\0c", 3)}; }, "command[1]", "\"b\\x00c\"",
       "without a NUL"},
      {[](auto& v) { v.entrypoint = {""}; }, "entrypoint[0]", "an empty text", "program"},
      {[](auto& v) { v.entrypoint = {"a", std::string("b\0c", 3)}; }, "entrypoint[1]",
       "\"b\\x00c\"", "NUL"},
      {[](auto& v) { v.entrypoint.emplace().assign(4097, "a"); }, "entrypoint", "4097 arguments",
       "4096"},
      {[](auto& v) { v.entrypoint = {"a", std::string(131'072, 'x')}; }, "entrypoint[1]",
       "131072 bytes", "131071"},
      {[](auto& v) { v.entrypoint.emplace().assign(9, std::string(131'071, 'x')); }, "command",
       "together with entrypoint", "1048576"},
      {[](auto& v) { v.command.assign(4097, "a"); }, "command", "4097 arguments", "4096"},
      {[](auto& v) { v.command = {"a", std::string(131'072, 'x')}; }, "command[1]", "131072 bytes",
       "131071"},
      {[](auto& v) { v.command.assign(9, std::string(131'071, 'x')); }, "command",
       "1179648 bytes together with entrypoint", "1048576"},
      {[](auto& v) {
         for (int i = 0; i <= 1024; ++i) v.env["E" + std::to_string(i)] = "";
       },
       "env", "1025 variables", "1024"},
      {[](auto& v) { v.env[""] = "x"; }, "env", "\"\"", "not empty"},
      {[](auto& v) { v.env["A=B"] = "x"; }, "env", "\"A=B\"", "without '='"},
      {[](auto& v) { v.env[std::string("A\0", 2)] = "x"; }, "env", "\"A\\x00\"", "without a NUL"},
      {[](auto& v) { v.env["A\xff"] = "x"; }, "env", "\"A\\xff\"", "UTF-8"},
      {[](auto& v) { v.env[std::string(4097, 'A')] = "x"; }, "env", "…\"", "4096 bytes"},
      {[](auto& v) { v.env["A"] = std::string(1, '\0'); }, "env.A", "\"\\x00\"", "without a NUL"},
      {[](auto& v) { v.env["A"] = std::string(131'070, 'x'); }, "env.A", "131072 bytes", "131071"},

      {[](auto& v) { v.user = "a b"; }, "user", "\"a b\"", "NAME or UID"},
      {[](auto& v) { v.user = "65536"; }, "user", "\"65536\"", "0 to 65535"},
      {[](auto& v) { v.user = "010"; }, "user", "\"010\"", "NAME or UID"},
      {[](auto& v) { v.user = "1:2:3"; }, "user", "\"1:2:3\"", "NAME or UID"},
      {[](auto& v) { v.user = ":1"; }, "user", "\":1\"", "NAME or UID"},
      {[](auto& v) { v.user = "a:"; }, "user", "\"a:\"", "NAME or UID"},
      {[](auto& v) { v.workdir = "work"; }, "workdir", "\"work\"", "an absolute path"},
      {[](auto& v) { v.workdir = "/a/../b"; }, "workdir", "\"/a/../b\"", "as in \"/b\""},
      {[](auto& v) { v.hostname = "a_b"; }, "hostname", "\"a_b\"", "a host name"},
      {[](auto& v) { v.hostname = "-a"; }, "hostname", "\"-a\"", "a host name"},
      {[](auto& v) { v.hostname = "a..b"; }, "hostname", "\"a..b\"", "a host name"},
      {[](auto& v) { v.hostname = std::string(64, 'a'); }, "hostname", "aaa", "63"},

      {[](auto& v) { v.grants.assign(65, {"a", "/a", kRo}); }, "files", "65 grants", "64"},
      {[](auto& v) {
         for (int i = 0; i < 10; ++i) {
           std::string to = "/" + std::to_string(i);
           while (to.size() < 4000) to += "/" + std::string(199, 'x');
           v.grants.push_back({"a", to, kRo});
         }
       },
       "files", "bytes of paths inside", "32768"},
      {[](auto& v) { v.grants = {{"", "/a", kRo}}; }, "files[from=\"\"].from", "an empty path",
       "a path of this host"},
      {[](auto& v) { v.grants = {{std::string("a\0", 2), "/a", kRo}}; },
       "files[from=\"a\\x00\"].from", "\"a\\x00\"", "without a NUL"},
      {[](auto& v) { v.grants = {{std::string(4096, 'a'), "/a", kRo}}; }, "files[from=\"a",
       "4096 bytes", "4095"},
      {[](auto& v) { v.grants = {{"/tmp/..//", "/a", kRo}}; }, "files[from=\"/tmp/..//\"].from",
       "the whole of this host", "below /"},
      {[](auto& v) { v.grants = {{"/proc", "/a", kRo}}; }, "files[from=\"/proc\"].from",
       "\"/proc\"", "outside the host's"},
      {[](auto& v) { v.grants = {{"/x/../sys/fs", "/a", kRo}}; },
       "files[from=\"/x/../sys/fs\"].from", "\"/x/../sys/fs\"", "outside the host's"},
      {[](auto& v) { v.grants = {{"/dev/shm", "/a", kRw}}; }, "files[from=\"/dev/shm\"].from",
       "\"/dev/shm\"", "outside the host's"},
      {[](auto& v) { v.grants = {{"a", "a", kRo}}; }, "files[from=\"a\"].to", "\"a\"",
       "an absolute path"},
      {[](auto& v) { v.grants = {{"a", "", kRo}}; }, "files[from=\"a\"].to", "\"\"",
       "an absolute path"},
      {[](auto& v) { v.grants = {{"a", "/", kRo}}; }, "files[from=\"a\"].to", "\"/\"", "below /"},
      {[](auto& v) { v.grants = {{"a", "/a/", kRo}}; }, "files[from=\"a\"].to", "\"/a/\"",
       "without empty components or a trailing slash, as in \"/a\""},
      {[](auto& v) { v.grants = {{"a", "//a", kRo}}; }, "files[from=\"a\"].to", "\"//a\"",
       "without empty components"},
      {[](auto& v) { v.grants = {{"a", "/b/../../etc", kRo}}; }, "files[from=\"a\"].to",
       "\"/b/../../etc\"", "without . and .."},
      {[](auto& v) { v.grants = {{"a", "/./a", kRo}}; }, "files[from=\"a\"].to", "\"/./a\"",
       "without . and .."},
      {[](auto& v) { v.grants = {{"a", "/proc", kRo}}; }, "files[from=\"a\"].to", "\"/proc\"",
       "outside /proc, /dev and /sys"},
      {[](auto& v) { v.grants = {{"a", "/dev/shm/x", kRo}}; }, "files[from=\"a\"].to",
       "\"/dev/shm/x\"", "outside /proc, /dev and /sys"},
      {[](auto& v) { v.grants = {{"a", "/sys/fs", kRo}}; }, "files[from=\"a\"].to", "\"/sys/fs\"",
       "outside /proc, /dev and /sys"},
      {[](auto& v) { v.grants = {{"a", std::string("/a\0b", 4), kRo}}; }, "files[from=\"a\"].to",
       "\"/a\\x00b\"", "without a NUL"},
      {[](auto& v) { v.grants = {{"a", "/" + std::string(256, 'x'), kRo}}; },
       "files[from=\"a\"].to", "xxx", "at most 255 bytes"},
      {[](auto& v) { v.grants = {{"a", "/" + std::string(4095, 'x'), kRo}}; },
       "files[from=\"a\"].to", "xxx", "at most 4095 bytes"},
      {[](auto& v) { v.grants = {{"a", "/w", kRo}, {"b", "/w", kRw}}; }, "files[from=\"b\"].to",
       "\"/w\" a second time", "the first is from \"a\""},
      {[](auto& v) { v.grants = {{"a", "/w", kRo}, {"b", "/w/c", kCopy}}; }, "files[from=\"b\"].to",
       "\"/w/c\" (copy) inside \"/w\" (ro)", "outside granted directories"},
      {[](auto& v) { v.grants = {{"b", "/w/c", kCopy}, {"a", "/w", kRw}}; }, "files[from=\"b\"].to",
       "\"/w/c\" (copy) inside \"/w\" (rw)", "outside granted directories"},
      {[](auto& v) { v.grants = {{"a", "/w", kCopy}, {"b", "/w/c", kRo}}; }, "files[from=\"b\"].to",
       "\"/w/c\" (ro) inside \"/w\" (copy)", "outside copied directories"},
      {[](auto& v) { v.grants = {{"a", "/w", kRw}, {"b", "/w/c/d", kRo}}; }, "files[from=\"b\"].to",
       "\"/w/c/d\" (ro) inside \"/w\" (rw)", "directly below the writable one"},
      {[](auto& v) { v.grants = {{"./a/", "/x", kRo}, {"a", "/y", kRw}}; },
       "files[from=\"a\"].mode", "rw, and ro for the same path", "one of both"},

      {[](auto& v) {
         for (int i = 0; i < 65; ++i) v.outputs.push_back({"/a", std::to_string(i)});
       },
       "files", "65 outputs", "64"},
      {[](auto& v) { v.outputs = {{"a", "b"}}; }, "files[out=\"a\"].out", "\"a\"",
       "an absolute path"},
      {[](auto& v) { v.outputs = {{"/proc/kcore", "b"}}; }, "files[out=\"/proc/kcore\"].out",
       "\"/proc/kcore\"", "outside /proc"},
      {[](auto& v) { v.outputs = {{"/", "b"}}; }, "files[out=\"/\"].out", "\"/\"", "below /"},
      {[](auto& v) { v.outputs = {{"/a", ""}}; }, "files[out=\"/a\"].to", "an empty path",
       "a path of this host"},
      {[](auto& v) { v.outputs = {{"/a", "./r"}, {"/b", "r"}}; }, "files[out=\"/b\"].to",
       "\"r\" a second time", "one output for each path"},
      {[](auto& v) {
         v.grants = {{"a", "/w", kRo}};
         v.outputs = {{"/w/r", "r"}};
       },
       "files[out=\"/w/r\"].out", "\"/w/r\" inside the grant \"/w\"", "outside read-only grants"},
      {[](auto& v) {
         v.grants = {{"a", "/w", kRw}};
         v.outputs = {{"/w", "r"}};
       },
       "files[out=\"/w\"].out", "\"/w\" inside the grant \"/w\"", "outside writable grants"},

      {[](auto& v) { v.limits.cpu_milli = 9; }, "limits.cpus", "0.009", "0.01 to 1024"},
      {[](auto& v) { v.limits.cpu_milli = 1'024'001; }, "limits.cpus", "1024.001", "to 1024"},
      {[](auto& v) { v.limits.memory = (8 << 20) - 1; }, "limits.memory", "8388607",
       "8MiB to 1PiB, or unlimited"},
      {[](auto& v) { v.limits.memory = (1ull << 50) + 1; }, "limits.memory", "1125899906842625",
       "8MiB to 1PiB"},
      {[](auto& v) { v.limits.pids = 1; }, "limits.pids", "1", "2 to 4194304"},
      {[](auto& v) { v.limits.pids = 0; }, "limits.pids", "0", "or unlimited"},
      {[](auto& v) { v.limits.pids = 4'194'305; }, "limits.pids", "4194305", "2 to 4194304"},
      {[](auto& v) { v.limits.disk = 65'535; }, "limits.disk", "65535", "64KiB to 1PiB"},
      {[](auto& v) { v.limits.inodes = 15; }, "limits.inodes", "15", "16 to 1G"},
      {[](auto& v) { v.limits.inodes = 1'000'000'001; }, "limits.inodes", "1000000001", "to 1G"},
      {[](auto& v) { v.limits.open_files = 15; }, "limits.open_files", "15", "16 to 1048576"},
      {[](auto& v) { v.limits.open_files = 1'048'577; }, "limits.open_files", "1048577",
       "16 to 1048576"},
      {[](auto& v) { v.limits.output = 0; }, "limits.output", "0", "1 to 1PiB"},
      {[](auto& v) { v.limits.output = UINT64_MAX; }, "limits.output", "18446744073709551615",
       "1 to 1PiB"},
      {[](auto& v) { v.limits.timeout_ms = 0; }, "limits.timeout", "0", "1ms to 365d"},
      {[](auto& v) { v.limits.timeout_ms = UINT64_MAX; }, "limits.timeout", "ms", "to 365d"},
      {[](auto& v) { v.limits.cpu_time_ms = 0; }, "limits.cpu_time", "0", "1ms to 365d"},
      {[](auto& v) { v.limits.io_read = 4095; }, "limits.io_read", "4095/s",
       "4KiB/s to 1PiB/s, or unlimited"},
      {[](auto& v) { v.limits.io_write = (1ull << 50) + 1; }, "limits.io_write",
       "1125899906842625/s", "4KiB/s to 1PiB/s"},
      {[](auto& v) { v.limits.io_read_ops = 0; }, "limits.io_read_ops", "0", "1/s to 1G/s"},
      {[](auto& v) { v.limits.io_write_ops = 1'000'000'001; }, "limits.io_write_ops",
       "1000000001/s", "1/s to 1G/s"},
      {[](auto& v) { v.limits.disk = 513ull << 20; }, "limits.disk", "513MiB",
       "at most limits.memory (512MiB), because a tmpfs layer"},
      {[](auto& v) { v.limits.disk = std::nullopt; }, "limits.disk", "unlimited",
       "at most limits.memory"},
  };
  for (const Case& c : cases) {
    SpecValues values;
    c.change(values);
    const auto spec = SandboxSpec::validate(values);
    ASSERT_FALSE(spec) << c.key << " " << c.found;
    const std::string& message = spec.error().message();
    EXPECT_THAT(message, StartsWith(c.key));
    EXPECT_THAT(message, HasSubstr(": found "));
    const std::size_t allowed = message.find("; allowed is ");
    ASSERT_NE(allowed, std::string::npos) << message;
    EXPECT_THAT(message.substr(0, allowed), HasSubstr(c.found));
    EXPECT_THAT(message.substr(allowed), HasSubstr(c.allowed));
    EXPECT_EQ(spec.error().code(), Code::kInvalidArgument);
    EXPECT_LT(message.size(), 500u);
    // Fit for a terminal whatever was found.
    for (const char byte : message) EXPECT_GE(static_cast<unsigned char>(byte), 0x20) << message;
  }
}

TEST(Spec, EveryRangeIncludesItsEnds) {
  for (const LimitRule& rule : kLimitRules) {
    for (const std::uint64_t end : {rule.min, rule.max}) {
      SpecValues values;
      values.layer = LayerKind::kQuota;
      values.limits.*rule.value = end;
      EXPECT_EQ(outcome(values), "accepted") << rule.key << " " << end;
    }
    SpecValues values;
    values.layer = LayerKind::kQuota;
    values.limits.*rule.value = std::nullopt;
    EXPECT_EQ(outcome(values), "accepted") << rule.key;
    values.limits.*rule.value = rule.max + 1;
    EXPECT_THAT(outcome(values), StartsWith("limits." + std::string(rule.key))) << rule.key;
    values.limits.*rule.value = rule.min - 1;
    EXPECT_THAT(outcome(values), StartsWith("limits." + std::string(rule.key))) << rule.key;
  }
}

TEST(Spec, AcceptsWhatIsAllowed) {
  const std::vector<std::function<void(SpecValues&)>> changes = {
      [](auto& v) { v.image = "host"; },
      [](auto& v) { v.image = "team/python:3.12"; },
      [](auto& v) {
        v.image = "registry.example.com:5000/a/b-c_d.e:V1@sha256:" + std::string(64, 'a');
      },
      [](auto& v) { v.command = {"sh", "", "\xff\n", std::string(131'071, 'x')}; },
      [](auto& v) { v.env = {{"A", ""}, {"B.C-d %", "x=y"}, {"É", "\xff"}}; },
      [](auto& v) { v.user = "root"; },
      [](auto& v) { v.user = "0:0"; },
      [](auto& v) { v.user = "65535:staff"; },
      [](auto& v) { v.user = "_a.b-c:100"; },
      [](auto& v) { v.workdir = "/"; },
      [](auto& v) { v.workdir = "/a b/\xff"; },
      [](auto& v) { v.hostname = "Box-1.example.com"; },
      [](auto& v) {
        v.wall = WallKind::kMicrovm;
        v.allow_emulation = true;
      },
      [](auto& v) { v.grants = {{"../a", "/procfs", kRo}, {"/dev/shm/x", "/devel/x", kRw}}; },
      [](auto& v) { v.grants = {{".", "/w", kRo}, {"out", "/w/out", kRw}}; },
      [](auto& v) { v.grants = {{".", "/w", kRw}, {".git", "/w/.git", kRo}}; },
      [](auto& v) { v.grants = {{"a", "/w", kCopy}, {"b", "/w/b", kCopy}}; },
      [](auto& v) { v.grants = {{"a", "/w", kRo}, {"b", "/wide", kCopy}}; },
      [](auto& v) { v.grants = {{"a", "/w", kRo}, {"a", "/x", kCopy}, {"a", "/y", kRo}}; },
      [](auto& v) {
        v.grants = {{"a", "/w", kCopy}};
        v.outputs = {{"/w/r", "r"}, {"/w/r", "s"}};
      },
      [](auto& v) { v.limits.disk = v.limits.memory; },
      [](auto& v) {
        v.limits.memory = std::nullopt;
        v.limits.disk = std::nullopt;
      },
      [](auto& v) {
        v.layer = LayerKind::kQuota;
        v.limits.disk = 1ull << 40;
      },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    SpecValues values;
    changes[i](values);
    EXPECT_EQ(outcome(values), "accepted") << i;
  }
}

TEST(Syntax, ImagesThatAreNone) {
  for (const std::string_view image :
       {"a/", "/a", "a//b", "a/../b", ".a", "a.", "-a", "a:", "a:-b", "a b", "a@sha256:1",
        "a@md5:x", "a:b:c", "host:0/a", "host:99999/a", "a\n", "a@", "ä"}) {
    EXPECT_NE(image_fault(image), "") << image;
  }
  EXPECT_NE(image_fault(std::string(256, 'a')), "");
  EXPECT_NE(image_fault("a:" + std::string(129, 'b')), "");
  EXPECT_NE(image_fault("a@sha256:" + std::string(64, 'A')), "");
}

TEST(InsidePath, Below) {
  EXPECT_TRUE(is_below("/a/b", "/a"));
  EXPECT_TRUE(is_below("/a", "/"));
  EXPECT_FALSE(is_below("/", "/"));
  EXPECT_FALSE(is_below("/a", "/a"));
  EXPECT_FALSE(is_below("/ab", "/a"));
}

TEST(InsidePath, Normalised) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "."},
      {".", "."},
      {"/", "/"},
      {"//", "/"},
      {"a/", "a"},
      {"./a", "a"},
      {"a/..", "."},
      {"a/../b", "b"},
      {"../a", "../a"},
      {"../../a", "../../a"},
      {"/../a", "/a"},
      {"/a/./b//c/", "/a/b/c"},
      {"a/../../b", "../b"},
  };
  for (const auto& [path, normal] : cases) EXPECT_EQ(normalised(path), normal) << path;
}

TEST(Complain, QuotesForATerminal) {
  EXPECT_EQ(quote("a\"b\\c"), "\"a\\\"b\\\\c\"");
  EXPECT_EQ(quote("\x1b[2J\x7f\n"), "\"\\x1b[2J\\x7f\\x0a\"");
  EXPECT_EQ(quote("é😀"), "\"é😀\"");
  EXPECT_EQ(quote("\xc2\x9b\xff"), "\"\\xc2\\x9b\\xff\"");
  EXPECT_EQ(quote("\xc3"), "\"\\xc3\"");
  const std::string cut = quote(std::string(200, 'x'));
  EXPECT_LE(cut.size(), 86u);
  EXPECT_TRUE(cut.ends_with("…\"")) << cut;
}

TEST(Complain, FindsTheNearestKey) {
  constexpr std::string_view kKnown[] = {"cpus", "memory", "open_files", "timeout", "cpu_time"};
  const auto near = [&](std::string_view word) { return nearest(word, kKnown, std::size(kKnown)); };
  EXPECT_EQ(near("mem"), "memory");
  EXPECT_EQ(near("memroy"), "memory");
  EXPECT_EQ(near("open-files"), "open_files");
  EXPECT_EQ(near("OpenFiles"), "open_files");
  EXPECT_EQ(near("cpu"), "cpus");
  EXPECT_EQ(near("time_out"), "timeout");
  EXPECT_EQ(near("zzz"), "");
  EXPECT_EQ(near("x"), "");
  EXPECT_EQ(near(std::string(1000, 'c')), "");
}

}  // namespace
}  // namespace caisson::policy
