// Where Caisson keeps its things on this host: /var/lib/caisson and /run/caisson as root, XDG
// folders for an ordinary user. CAISSON_STATE_DIR and CAISSON_RUN_DIR override them (tests use
// this).
#pragma once

#include <string>

#include "base/error.h"

namespace caisson {

// Images and everything that outlives a boot. $CAISSON_STATE_DIR; root: /var/lib/caisson; else
// $XDG_DATA_HOME/caisson or ~/.local/share/caisson.
std::string state_directory();

// Sandboxes that live now (run_directory()/sandboxes/ID) and locks. $CAISSON_RUN_DIR; root:
// /run/caisson; else $XDG_RUNTIME_DIR/caisson or /tmp/caisson-UID.
std::string run_directory();

// The folder of a helper binary (caisson-launcher, caisson-guest, caisson-image-worker):
// beside the running program, else LIBEXECDIR/caisson. Error: not_found, naming both places.
Result<std::string> helper_binary(const std::string& name);

}  // namespace caisson
