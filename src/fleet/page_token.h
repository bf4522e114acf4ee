// Lists of sandboxes in pages: which match, in what order, and where the next page begins.
//
// Pure. A token names the last sandbox of a page by its start and id (base64url of
// "NANOSECONDS__ID", with "__asc" behind it in ascending order), so that a page is right whatever
// was made or ended meanwhile.
#pragma once

#include <string>
#include <vector>

#include "fleet/fleet.h"

namespace caisson::fleet {

bool matches(const SandboxView& view, const ListQuery& query);

// The page of these that the query asks for. Error: invalid_argument for a token that is not one,
// or belongs to the other order.
Result<ListPage> page_of(std::vector<SandboxView> views, const ListQuery& query);

}  // namespace caisson::fleet
