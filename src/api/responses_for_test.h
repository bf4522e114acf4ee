// For tests: every response that the tests of this program got from /v1, for responses_test.cpp,
// which holds them against docs/api.yaml when all tests have run.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "api/router.h"

namespace caisson::api {

// "GET /v1/sandboxes/{id} 200"
inline std::set<std::string>& responses_seen() {
  static std::set<std::string> seen;
  return seen;
}

// Of a request that some route of `routes` took.
template <typename Routes>
void note_response(const Routes& routes, const std::string& method,
                   const std::vector<std::string>& segments, int status) {
  Router router;
  for (const auto& route : routes) router.add(route.method, route.pattern);
  const Router::Match match = router.match(method, segments);
  if (match.kind != Router::Match::Kind::kRoute) return;
  const auto& route = routes[match.route];
  if (!route.pattern.starts_with("/v1/")) return;
  responses_seen().insert(std::string(route.method) + " " + std::string(route.pattern) + " " +
                          std::to_string(status));
}

}  // namespace caisson::api
