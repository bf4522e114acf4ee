// E2B's lists of sandboxes: GET /sandboxes and /v2/sandboxes.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "api/call.h"

namespace caisson::api::e2b {

std::span<const Route> list_routes();

// The parameter `metadata`: a query of its own ("user=alice&app=x%2520y") whose keys and values are
// escaped once more. At most 64 pairs. Pure.
Result<std::map<std::string, std::string>> parse_metadata_query(std::string_view text);
// The other parameters of /v2/sandboxes. Pure.
Result<fleet::ListQuery> parse_list_query(const http::Target& target);

}  // namespace caisson::api::e2b
