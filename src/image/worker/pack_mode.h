// The mode `pack` of caisson-image-worker; see image/worker_protocol.h.
#pragma once

namespace caisson::image {

// The program's whole life in this mode: its exit status.
int run_pack(int count, char** arguments);

}  // namespace caisson::image
