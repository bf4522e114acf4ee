// Which sandbox a request is meant for, if any: the way into the data plane. Pure functions.
//
// Clients name a sandbox and a port inside it by the host, "PORT-ID.DOMAIN", or where all requests
// go to one host by the headers E2b-Sandbox-Id and E2b-Sandbox-Port. A request with neither is for
// the control plane.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "http/message.h"

namespace caisson::api {

// Where the data plane's own interface is reached; every other port is a program's.
inline constexpr std::uint16_t kEnvdPort = 49983;

struct SandboxAddress {
  std::string id;
  std::uint16_t port = kEnvdPort;
  bool operator==(const SandboxAddress&) const = default;
};

// `domain`: see Backend; its port, and the host's, play no part. nullopt: the control plane's.
// Error: invalid_argument where a sandbox is meant and its name is malformed.
Result<std::optional<SandboxAddress>> sandbox_address(const http::Headers& headers,
                                                      std::string_view domain);

}  // namespace caisson::api
