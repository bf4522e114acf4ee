#include "api/router.h"

#include <algorithm>

#include "base/error.h"

namespace caisson::api {
namespace {

bool fits(const std::vector<std::string>& pattern, const std::vector<std::string>& segments) {
  if (pattern.size() != segments.size()) return false;
  for (std::size_t index = 0; index < pattern.size(); ++index) {
    if (segments[index].empty()) return false;
    if (!pattern[index].empty() && pattern[index] != segments[index]) return false;
  }
  return true;
}

// Of two patterns that fit the same path: whether `one` has a word where they first differ.
bool more_exact(const std::vector<std::string>& one, const std::vector<std::string>& other) {
  const auto [at, there] = std::ranges::mismatch(one, other);
  return at != one.end() && !at->empty();
}

}  // namespace

std::size_t Router::add(std::string_view method, std::string_view pattern) {
  VERIFY(pattern.starts_with('/') && pattern.size() > 1);
  Route route{std::string(method), {}};
  while (!pattern.empty()) {
    pattern.remove_prefix(1);
    const std::string_view segment = pattern.substr(0, pattern.find('/'));
    VERIFY(!segment.empty());
    route.segments.emplace_back(segment.starts_with('{') ? std::string_view() : segment);
    pattern.remove_prefix(segment.size());
  }
  routes_.push_back(std::move(route));
  return routes_.size() - 1;
}

Router::Match Router::match(std::string_view method,
                            const std::vector<std::string>& segments) const {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  Match match;
  for (std::size_t index = 0; index < routes_.size(); ++index) {
    const Route& route = routes_[index];
    if (!fits(route.segments, segments)) continue;
    if (route.method == wanted) {
      if (match.kind == Match::Kind::kRoute &&
          !more_exact(route.segments, routes_[match.route].segments)) {
        continue;
      }
      match.kind = Match::Kind::kRoute;
      match.route = index;
    } else if (match.kind != Match::Kind::kRoute) {
      match.kind = Match::Kind::kNoMethod;
      if (!match.allowed.empty()) match.allowed += ", ";
      match.allowed += route.method;
    }
  }
  if (match.kind != Match::Kind::kRoute) return match;
  match.allowed.clear();
  const std::vector<std::string>& pattern = routes_[match.route].segments;
  for (std::size_t index = 0; index < pattern.size(); ++index) {
    if (pattern[index].empty()) match.parameters.push_back(segments[index]);
  }
  return match;
}

}  // namespace caisson::api
