// Handing out the overlay's upper directory (`keep_layer`), by the setup child, when the root is
// built and before anybody's code runs.
//
// What is handed out is the root of a mount of its own, a read-only one without a name, so that
// whoever has it sees the upper directory and nothing beside or above it. With it goes a record of
// what lies in there already (image/layer_record.h): what set-up made is nobody's change.
#pragma once

#include "base/error.h"
#include "wall/handouts.h"
#include "wall/namespace/ids.h"

namespace caisson::wall {

// `layer_fd` is the writable layer, attached in this mount namespace. Sets the files that are in
// its upper directory to one second before now, so that any later writing shows by its time.
// Error: resource_exhausted where there are more mount points than the record has room for.
Status hand_out_layer(int layer_fd, const Ids& ids, Handouts& handouts);

}  // namespace caisson::wall
