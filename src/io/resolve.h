// A host's name as addresses, by this host's resolver. For clients alone: it loads what the C
// library is configured to, so no program that uses it is static.
#pragma once

#include <string>
#include <vector>

#include "io/async.h"
#include "io/loop.h"

namespace caisson::io {

// "127.0.0.1:80" and "[::1]:80", in the order in which they are to be tried. Numeric hosts need no
// resolver. Error: not_found, with the host.
Async<Result<std::vector<std::string>>> resolve(Loop& loop, std::string host, unsigned short port);

}  // namespace caisson::io
