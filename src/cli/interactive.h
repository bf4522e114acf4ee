// A command on the caller's terminal: shared by `shell` and `exec --tty`.
#pragma once

#include <caisson/sandbox.h>

#include <string>
#include <vector>

#include "cli/host.h"
#include "cli/terminal.h"

namespace caisson::cli {

// A shell of the image, the best that it has.
std::vector<std::string> shell_program();

// Runs it with a terminal inside, ours in raw mode meanwhile; says the verdict; returns the exit
// status. Only TERM of the caller's variables is passed on, where it is a plain word.
int run_on_terminal(HostedSandbox& sandbox, Command command, Session& session);

}  // namespace caisson::cli
