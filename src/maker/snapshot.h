// A snapshot of a sandbox's files: what was changed over its image, as one more layer of an image
// of the store. With the rights of this process; blocks; no state but the host's.
//
// The store keeps what has a name in it. Such an image is named by its id below kSnapshotNames: no
// client can name it like that, and who has the database takes the names away that nobody needs any
// more.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace caisson::maker {

inline constexpr std::string_view kSnapshotNames = "caisson-snapshot/";

// See Host.
Result<std::string> take_snapshot(const std::string& id, const std::string& image);
Result<std::vector<std::string>> old_snapshots();
Status drop_snapshot(const std::string& image);

}  // namespace caisson::maker
