// A caisson-minter as whoever makes a sandbox sees it: a process outside of it, with the maker's
// rights, that has the commands of its secrets and runs each when its value is about to end.
//
// It lives as long as the other end of its socket, which the maker keeps of a sandbox that ends
// with it, and the launcher of one that does not. Each gateway gets a connection of its own to it
// (launcher/minter_socket.h), over which come the values (minted.h) that there are, and every new
// one; no other process reads them. Values that it starts with are the maker's, who ran each
// command once.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/secret.h"
#include "egress/minted.h"

namespace caisson::egress {

struct MintedSecret {
  std::string name;
  std::vector<std::string> command;
  std::optional<std::uint64_t> ttl_ms;
  std::string_view value;  // borrowed
  std::optional<WallTime> expires;
};

// The socket that it lives by. Returns when it has been told everything. Error: not_found without
// the program.
Result<Fd> start_minter(const std::vector<MintedSecret>& secrets);
// Of a minter's messages to be read at its start, each at most so long.
inline constexpr std::size_t kMostMinterMessage = 256 * 1024;

}  // namespace caisson::egress
