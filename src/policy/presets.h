// Rules for what package managers and git fetch: reading alone, so that nothing can be uploaded by
// what such a rule lets through but in a name, a path or a query.
//
// A preset says which requests, and never whose: the servers are what the caller names, or what the
// client's own configuration names on the caller's side (cli/client_servers.h). Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <caisson/network.h>

#include "base/error.h"

namespace caisson::policy {

// pip, npm, cargo, go, apt: GET and HEAD. git: these and POST to git-upload-pack, which is how a
// clone asks for objects; git-receive-pack, which is how a push sends them, is not among them.
inline constexpr std::array<std::string_view, 6> kPresets = {"apt", "cargo", "git",
                                                             "go",  "npm",   "pip"};

struct PresetServer {
  std::string host;  // as of NetworkRule::hosts
  std::uint16_t port = 443;
  bool tls = true;  // which is opened; false: HTTP without it
  bool operator==(const PresetServer&) const = default;
};

// Rules with the ids PRESET, PRESET-2 … for these servers, one for each port. Error:
// invalid_argument (no such preset, no server).
Result<std::vector<NetworkRule>> preset_rules(std::string_view preset,
                                              std::span<const PresetServer> servers);

// HOST[:PORT][,HOST[:PORT]…]: TLS but on port 80. Error: invalid_argument.
Result<std::vector<PresetServer>> parse_preset_servers(std::string_view text);

// The server of a URL by http or https, perhaps with the prefix of another protocol ("sparse+").
// Errors: invalid_argument (another scheme, a name or password in it, no host).
Result<PresetServer> server_of_url(std::string_view url);

}  // namespace caisson::policy
