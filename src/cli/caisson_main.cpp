// The program `caisson`.
#include <fcntl.h>
#include <unistd.h>

#include <span>

#include "cli/commands.h"

int main(int argc, char** argv) {
  // Descriptors 0 to 2 are ours to use by number: none of them may become a file of ours by chance.
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR));
  const std::span<char* const> arguments(argv + (argc > 0 ? 1 : 0),
                                         static_cast<std::size_t>(argc > 0 ? argc - 1 : 0));
  return caisson::cli::run_command_line(arguments, caisson::cli::local_host_or_remote);
}
