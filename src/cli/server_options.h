// The options of every command that can also act on a server.
#pragma once

#include <array>

#include "cli/args.h"

namespace caisson::cli {

inline constexpr std::array<Option, 3> kServerOptions = {{
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
}};
inline constexpr OptionGroup kServerGroup = {"A server", kServerOptions};

// --server or $CAISSON_SERVER; empty: this host.
std::string server_url(const Parsed& parsed);

}  // namespace caisson::cli
