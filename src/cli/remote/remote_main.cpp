// caisson-remote: what `caisson --server URL` becomes. The same commands, on a server's sandboxes.
#include <span>

#include "cli/commands.h"
#include "cli/remote/server_host.h"

int main(int argc, char** argv) {
  const std::span<char* const> arguments(argv + (argc > 0 ? 1 : 0),
                                         static_cast<std::size_t>(argc > 0 ? argc - 1 : 0));
  return caisson::cli::run_command_line(arguments, caisson::cli::make_server_host);
}
