// caisson-maker: the process that keeps the host's rights for a server that has none.
//
// It reads fixed binary requests (protocol.h) from one socket whose other end the server holds, and
// nothing else of any client's: no network, one thread, no state. What takes long is done in a fork
// of it, a few milliseconds for a sandbox; the launcher that this leaves behind belongs to the
// maker, which reaps it. Whoever has taken over the server can have sandboxes made of the store's
// images with the limits that a spec may have, and reach those of this run directory: what the
// server does anyway. It ends when the server does; sandboxes go on.
#pragma once

#include <cstddef>

namespace caisson::maker {

// What goes on at a time; one more is answered with resource_exhausted.
struct MakerBounds {
  // A server asks with the threads of its pool, some few; more than that is somebody else.
  std::size_t requests = 256;
  // Builders live for as long as a build takes and are counted apart, so that however many there
  // are every sandbox can be made. As many as a configuration may have (`builds.at_once`).
  std::size_t builders = 256;
};

// The maker's whole life in this process, which is changed for good (signals, subreaper). Borrows
// `control_fd`. Returns the exit status.
int run_maker(int control_fd, const MakerBounds& bounds = {});

}  // namespace caisson::maker
