// The sandboxes of a server, for the commands (cli/host.h).
#pragma once

#include <memory>

#include "cli/args.h"
#include "cli/host.h"

namespace caisson::cli {

// The server that the options and the environment name. Errors: invalid_argument (no key, no
// server, what is no URL), and those of reading the files of the key and the certificates.
Result<std::unique_ptr<Host>> make_server_host(std::span<char* const> arguments,
                                               const Parsed& parsed);

// A server's sandbox as it is listed. Error: data_loss. Pure.
Result<SandboxInfo> parse_sandbox(const json::Value& value);

// The body that asks a server for a sandbox of this spec, and for how long. Error: what of the spec
// no server does, with the option. Pure.
Result<json::Value> sandbox_body(const SandboxSpec& spec);

}  // namespace caisson::cli
