// How a gateway comes to the values of secrets that commands make: whoever starts it asks the
// sandbox's minter (egress/minter_process.h) for a connection, which goes to the gateway unread.
#pragma once

#include <sys/socket.h>

#include <array>
#include <utility>

#include "base/child_process.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/sys.h"

namespace caisson::launcher {

// The gateway's end. Does not wait. Where there is no minter any more nothing comes over it, and
// the gateway goes without such values: what it was given with its policy may have ended.
inline Result<Fd> connect_minter(int minter_fd) {
  TRY_ASSIGN(SocketPair sockets, make_socket_pair(SOCK_SEQPACKET));
  const std::array theirs = {sockets.theirs.get()};
  (void)sys::send_part(minter_fd, "G", theirs, MSG_DONTWAIT);
  return std::move(sockets.ours);
}

}  // namespace caisson::launcher
