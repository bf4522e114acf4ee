// With --server a command is done by caisson-remote, which knows TLS and has this host's resolver:
// this program is too small and too quick to start for either.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/paths.h"
#include "cli/commands.h"
#include "cli/server_options.h"

namespace caisson::cli {

std::string server_url(const Parsed& parsed) {
  if (parsed.has("--server")) return parsed.value("--server");
  const char* variable = std::getenv("CAISSON_SERVER");
  return variable == nullptr ? "" : variable;
}

Result<std::unique_ptr<Host>> local_host_or_remote(std::span<char* const> arguments,
                                                   const Parsed& parsed) {
  if (server_url(parsed).empty()) return make_local_host();
  TRY_ASSIGN(const std::string program, helper_binary("caisson-remote"));
  std::string name = "caisson-remote";
  std::vector<char*> words = {name.data()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.push_back(nullptr);
  ::execv(program.c_str(), words.data());
  return fail(Error::syscall("start " + program, errno));
}

}  // namespace caisson::cli
