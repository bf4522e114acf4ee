// A snapshot of a sandbox's files: what was changed over its image, as one more layer of an image
// of the store. The parts of the fleet that block, for the loop's pool. Thread-safe: a call has no
// state but the host's.
//
// The store keeps what has a name in it. Such an image is named by its id below kSnapshotNames; no
// client names it like that, and sweep_snapshots() takes the names away that nobody needs any more.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::fleet {

inline constexpr std::string_view kSnapshotNames = "caisson-snapshot/";

// `image` is what the sandbox was made from, as the store resolves it. Everything in the sandbox
// stands still while its files are read, and nothing of it ends. The new image as "sha256:ID";
// where nothing was changed, the one that there is. Errors: unavailable (it is gone, or somebody
// reads its files already), failed_precondition (its files cannot be held here), not_found (its
// image is not in the store any more), resource_exhausted (the disk).
Result<std::string> take_snapshot(const std::string& host_id, const std::string& image);
// Takes the image's own name away; what it has alone goes with it, or with the last sandbox that
// uses it. No error where it has none.
Status drop_snapshot(const std::string& image);
// The same for all that are not among `needed` and are older than a few minutes: who has just made
// one may not have written it down yet.
Status sweep_snapshots(const std::vector<std::string>& needed);

}  // namespace caisson::fleet
