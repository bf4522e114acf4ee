// The named steps of changing the store, for the tests' fault points: in the test build
// CAISSON_FAULT=STEP:kill ends the process at the beginning of that step with SIGKILL and
// CAISSON_FAULT=STEP:fail makes the step fail, so that a test can show that nothing half visible is
// left whichever step it is. The release build has no such switch.
#pragma once

#include <array>
#include <string_view>

#include "base/error.h"

namespace caisson::image {

// In the order in which an import passes them; those of removal follow.
inline constexpr std::array<std::string_view, 17> kStoreSteps = {
    "store-begin",      // nothing is there
    "store-workspace",  // the archive is copied, and the workspace's folder is made
    "store-unpack",     // the worker has unpacked
    "store-blob",       // a blob's bytes are written, not in place
    "store-blob-move",  // synced, not in place
    "store-blob-done",  // in place, the folder not synced
    "store-info",       // the root file system's info is written
    "store-move",       // synced, not in place
    "store-moved",      // in place, the folder not synced
    "store-record",     // all but the record is there
    "store-name",       // all but the name is there
    "store-named",      // the name is there, the sweep to come
    "store-unname",     // a name is to be removed
    "store-sweep",      // a sweep begins
    "store-unlist",     // records are to be removed
    "store-retire",     // root file systems are to be moved away
    "store-empty",      // what was moved away is to be removed
};

// `name` must be one of kStoreSteps.
Status enter_store_step(std::string_view name);

}  // namespace caisson::image
