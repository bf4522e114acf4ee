#include "policy/presets.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "policy/complain.h"
#include "policy/host_name.h"

namespace caisson::policy {
namespace {

constexpr std::uint16_t kTlsPort = 443, kPlainPort = 80;

std::vector<HttpMatch> requests_of(std::string_view preset) {
  std::vector<HttpMatch> requests = {{.methods = {"GET", "HEAD"}}};
  if (preset == "git") requests.push_back({.methods = {"POST"}, .paths = {"/**/git-upload-pack"}});
  return requests;
}

}  // namespace

Result<std::vector<NetworkRule>> preset_rules(std::string_view preset,
                                              std::span<const PresetServer> servers) {
  if (std::ranges::find(kPresets, preset) == kPresets.end()) {
    std::string allowed = alternatives(kPresets.data(), kPresets.size());
    const std::string_view near = nearest(preset, kPresets.data(), kPresets.size());
    if (!near.empty()) allowed += "; perhaps " + std::string(near) + " is meant";
    return fail(wrong("the preset", quote(preset), allowed));
  }
  if (servers.empty())
    return fail(wrong("the preset " + std::string(preset), "no server", "one or more"));
  std::vector<NetworkRule> rules;
  for (const PresetServer& server : servers) {
    const TlsMode mode = server.tls ? TlsMode::kInspect : TlsMode::kPlaintext;
    auto rule = std::ranges::find_if(rules, [&](const NetworkRule& known) {
      return known.tls == mode && known.ports.front() == server.port;
    });
    if (rule == rules.end()) {
      NetworkRule made{.id = std::string(preset), .ports = {server.port}, .tls = mode};
      if (!rules.empty()) made.id += "-" + std::to_string(rules.size() + 1);
      made.http = requests_of(preset);
      rule = rules.insert(rules.end(), std::move(made));
    }
    if (std::ranges::find(rule->hosts, server.host) == rule->hosts.end())
      rule->hosts.push_back(server.host);
  }
  return rules;
}

Result<std::vector<PresetServer>> parse_preset_servers(std::string_view text) {
  std::vector<PresetServer> servers;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view entry = text.substr(0, comma);
    TRY_ASSIGN(const Authority authority, canonical_authority(entry));
    const std::uint16_t port = authority.port.value_or(kTlsPort);
    servers.push_back({authority.host.text(), port, port != kPlainPort});
    if (comma == text.npos) return servers;
    text.remove_prefix(comma + 1);
  }
}

Result<PresetServer> server_of_url(std::string_view url) {
  std::string_view rest = url;
  const std::size_t scheme_end = rest.find("://");
  std::string_view scheme = rest.substr(0, scheme_end == rest.npos ? 0 : scheme_end);
  if (const std::size_t plus = scheme.find('+'); plus != scheme.npos)
    scheme.remove_prefix(plus + 1);
  const bool tls = scheme == "https";
  // A password that stands here is not repeated.
  if (!tls && scheme != "http") return fail(wrong("the URL", "another one", "http:// or https://"));
  rest.remove_prefix(scheme_end + 3);
  const std::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
  if (authority.contains('@'))
    return fail(wrong("the URL", "a user name in it", "one without (a --secret may hold it)"));
  TRY_ASSIGN(const Authority read, canonical_authority(authority));
  return PresetServer{read.host.text(), read.port.value_or(tls ? kTlsPort : kPlainPort), tls};
}

}  // namespace caisson::policy
