// What of the root only the caller's rights can make: idmapped clones of the image and the grants,
// device nodes.
//
// The supervisor makes them while the setup child, which it has cloned before, makes the rest, and
// sends them over the child's report socket. The child's answer is one message too: what the root
// came to be, or why there is none.
#pragma once

#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "wall/handouts.h"
#include "wall/namespace/ids.h"
#include "wall/namespace/steps.h"
#include "wall/plan.h"

namespace caisson::wall {

struct RootParts {
  // Detached mounts of the image's roots (image_roots()), idmapped; invalid: bind them inside.
  std::vector<Fd> images;
  Fd layer, overlay;  // the writable layer and the root over it (layer.h); invalid: make inside
  std::vector<Fd> grants;  // detached mounts in the plan's order; invalid: bind it inside
  Fd etc;                  // the host image's kept /etc: a detached mount as root, else its path
  Fd devices;              // detached tmpfs with the device nodes; invalid: bind the host's
};

// All but `etc`. Without root's rights all parts are invalid, and an image that is a mount is
// refused.
Result<RootParts> make_parts(const Plan& plan, const Ids& ids, Steps& steps);
// The kept /etc, where the sandbox has one.
Status add_etc(RootParts& parts, Fd etc, IdMode mode);

// Over a SOCK_SEQPACKET pair. receive_parts() waits; cancelled where the other end is gone.
Status send_parts(int socket_fd, RootParts parts);
Result<RootParts> receive_parts(int socket_fd, const Plan& plan);

// The setup child's last word: the writable layer, for fstatfs(2), the file behind the boot id, for
// writing, and what is handed out.
struct Birth {
  Fd layer, boot_id;
  Handouts handouts;
};
Status send_birth(int socket_fd, int layer_fd, int boot_id_fd, const Handouts& handouts);
// The failed step's sentence instead.
void send_stillbirth(int socket_fd, const Error& why);
// Waits. Error: that sentence, or that the child died. It is failed_precondition where this host
// lacks something, else internal.
Result<Birth> receive_birth(int socket_fd);

// The word of the setup child's own child (setup.cpp): the namespaces are made, here is the gateway
// where there is one; or send_stillbirth(). receive_spaces() waits.
Status send_spaces(int socket_fd, const Gateway& gateway);
Result<Gateway> receive_spaces(int socket_fd);

}  // namespace caisson::wall
