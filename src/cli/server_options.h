// The options of every command that can also act on a server.
#pragma once

#include <array>

#include "cli/args.h"

namespace caisson::cli {

inline constexpr std::array<Option, 4> kServerOptions = {{
    {.name = "--server",
     .value = "URL",
     .help = "Act on this server, such as https://server.example.com, and not on this host; "
             "$CAISSON_SERVER does too. The key is $CAISSON_API_KEY or in a file."},
    {.name = "--server-key-file",
     .value = "FILE",
     .help = "The API key for it. Default: $CAISSON_API_KEY_FILE.",
     .complete = Complete::kFile},
    {.name = "--server-ca",
     .value = "FILE",
     .help = "Trust these certificates, as PEM, in place of this host's. Default: "
             "$CAISSON_SERVER_CA.",
     .complete = Complete::kFile},
    {.name = "--insecure-http",
     .help = "Send the key in the clear, to an http:// address that is not this host's own; "
             "$CAISSON_INSECURE_HTTP=1 does too."},
}};
inline constexpr OptionGroup kServerGroup = {"A server", kServerOptions};

// --server or $CAISSON_SERVER; empty: this host.
std::string server_url(const Parsed& parsed);

}  // namespace caisson::cli
