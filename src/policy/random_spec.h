// Valid specs at random, for tests alone: every field, odd texts among them.
#pragma once

#include <random>
#include <string>
#include <utility>

#include "policy/limits.h"
#include "policy/names.h"
#include "policy/spec.h"

namespace caisson::policy {

class RandomSpec {
 public:
  explicit RandomSpec(std::uint64_t seed) : random_(seed) {}

  SpecValues make() {
    SpecValues v;
    if (chance(2)) v.image = pick({"host", "base", "team/python:3.12", "a", "null", "1", "y.2"});
    v.wall = static_cast<WallKind>(below(kWallNames.size()));
    v.allow_emulation = chance(3) && (v.wall == WallKind::kAuto || v.wall == WallKind::kMicrovm);
    for (auto n = below(6); n > 0; --n) v.command.push_back(text());
    if (!v.command.empty() && v.command[0].empty()) v.command[0] = "sh";
    if (chance(3)) {
      for (auto n = below(3); n > 0; --n) v.entrypoint.emplace().push_back("/bin/" + component());
      if (!v.entrypoint.has_value()) v.entrypoint.emplace();
    }
    for (auto n = below(6); n > 0; --n) {
      std::string name =
          pick({"PATH", "A", "null", "~",  "true", "<<", "1", "a b", "é:", "- x", "?", "{a",
                "\"",   "'", "#",    "&a", "*a",   "!t", "%", "@",   "`",  "|",   ">"});
      v.env[name] = text();
    }
    if (chance(2)) v.user = pick({"user", "0", "1000:100", "yes", "no:1", "_x"});
    v.privileges = static_cast<Privileges>(below(kPrivilegesNames.size()));
    v.profile = static_cast<SyscallProfile>(below(kProfileNames.size()));
    v.on_refusal = static_cast<OnRefusal>(below(kOnRefusalNames.size()));
    if (chance(2)) v.workdir = "/" + component();
    if (chance(2)) v.hostname = pick({"box", "1", "a.example.com", "true", "NULL"});
    v.layer = static_cast<LayerKind>(below(kLayerNames.size()));
    if (chance(2)) v.network = network();
    for (auto n = below(4); n > 0; --n) {
      // A place of its own for each, so that none contradicts another.
      const std::string number = std::to_string(n);
      v.grants.push_back({"s" + number + text(), "/g" + number + component(),
                          static_cast<GrantMode>(below(kGrantModeNames.size()))});
    }
    for (auto n = below(4); n > 0; --n) {
      const std::string number = std::to_string(n);
      v.outputs.push_back({"/o" + number + component(), "t" + number + component()});
    }
    for (const LimitRule& rule : kLimitRules) {
      if (chance(6)) {
        v.limits.*rule.value = std::nullopt;
      } else if (chance(2)) {
        const std::uint64_t reach = (rule.max - rule.min) >> below(40);
        v.limits.*rule.value = rule.min + (reach == 0 ? 0 : random_() % (reach + 1));
      }
    }
    if (v.layer == LayerKind::kTmpfs && v.limits.memory.has_value() &&
        (!v.limits.disk.has_value() || *v.limits.disk > *v.limits.memory)) {
      v.limits.disk = v.limits.memory;
    }
    v.require_hard_limits = chance(2);
    return v;
  }

 private:
  std::uint64_t below(std::uint64_t end) { return random_() % end; }
  bool chance(std::uint64_t one_in) { return below(one_in) == 0; }
  std::string pick(std::initializer_list<const char*> words) {
    return words.begin()[below(words.size())];
  }

  std::string text() {
    std::string out;
    switch (below(4)) {
      case 0:
        return pick({"",     "null",   "~",         "true",       "No",    "0",   "012",
                     "1.5",  "0x1f",   "1e3",       ".inf",       "---",   "...", "- a",
                     "a: b", "a #b",   "[a",        "{b}",        "\"q\"", "'q'", "\\n",
                     "&a",   "*a",     "!!str",     "%YAML",      "@x",    "`x",  "|",
                     ">",    "?",      ":",         ",",          "a\nb",  " a ", "\t",
                     "\r\n", "512MiB", "unlimited", "2020-01-01", "=",     "<<",  "base64"});
      case 1:
        for (auto n = below(20); n > 0; --n) out += static_cast<char>(1 + below(255));
        return out;
      case 2:
        for (auto n = below(8); n > 0; --n) {
          out += pick({"é", "😀", "\xe2\x80\xa8", "\xc2\x85", "\xef\xbb\xbf", "\xef\xbf\xbf",
                       "\x04", "\x7f", "\x1b", "ß", "\xf4\x8f\xbf\xbf", " ", "x"});
        }
        return out;
      default:
        for (auto n = 1 + below(12); n > 0; --n) out += static_cast<char>('a' + below(26));
        return out;
    }
  }

  std::string host() {
    return pick({"a.example.com", "*.example.com", "**.b.example.com", "10.0.0.1", "x_y.test"});
  }

  NetworkPolicy network() {
    NetworkPolicy policy;
    policy.unmatched = static_cast<NetworkDefault>(below(kNetworkDefaultNames.size()));
    policy.floor = static_cast<Floor>(below(kFloorNames.size()));
    policy.audit.sync = static_cast<AuditSync>(below(kAuditSyncNames.size()));
    if (chance(2)) policy.audit.segment = kMinAuditSegment + 1024 * below(1000);
    policy.dns.unmatched = static_cast<UnmatchedName>(below(kUnmatchedNameNames.size()));
    policy.dns.ttl = static_cast<std::uint32_t>(1 + below(3600));
    if (chance(3))
      policy.dns.services = {"_db._tcp.example.com", pick({"_x._udp.b.test", "_y._tcp.c"})};
    if (chance(2)) policy.limits.connections = std::nullopt;
    if (chance(2)) policy.limits.rate_up = 1 + below(1u << 30);
    for (auto n = below(4); n > 0; --n) {
      NetworkRule& rule = policy.rules.emplace_back();
      if (chance(2)) rule.id = "r" + std::to_string(n) + pick({".a", "-b", "_c", ""});
      rule.action = static_cast<RuleAction>(below(kRuleActionNames.size()));
      rule.hosts.push_back(host());
      rule.any_port = chance(4);
      if (!rule.any_port) rule.ports.push_back(static_cast<std::uint16_t>(1 + below(65535)));
      if (chance(2)) rule.cidrs.push_back(pick({"10.0.0.0/8", "fd00::/8", "192.0.2.1/32"}));
      rule.tls = static_cast<TlsMode>(below(kTlsModeNames.size()));
      if (rule.tls == TlsMode::kSplice || rule.action == RuleAction::kDeny) continue;
      rule.websocket = chance(2);
      HttpMatch& match = rule.http.emplace_back();
      if (chance(2)) match.methods = {"GET", pick({"POST", "M-SEARCH"})};
      if (chance(2)) match.paths = {"/a/**", pick({"/b/*/{c,d}", "/"})};
      if (chance(2)) match.max_body = 1 + below(1u << 30);
    }
    return policy;
  }

  std::string component() {
    std::string out;
    for (const char c : text()) {
      if (c != '/') out += c;
    }
    return out.empty() || out == "." || out == ".." ? "x" : out;
  }

  std::mt19937_64 random_;
};

}  // namespace caisson::policy
