// Which route a request is for: a table of methods and path patterns.
//
// Pure: it knows no handlers, only the numbers of its routes. A pattern is a path whose segments
// are words or names in braces ("/sandboxes/{id}/pause"); a name takes any one segment that is not
// empty. Where two patterns fit, the one with a word at the first place in which they differ is
// meant, so "/sandboxes/metrics" goes before "/sandboxes/{id}".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace caisson::api {

class Router {
 public:
  // Gives the route's number: 0, 1, 2… in the order of the calls.
  std::size_t add(std::string_view method, std::string_view pattern);

  struct Match {
    enum class Kind : std::uint8_t { kRoute, kNoPath, kNoMethod };
    Kind kind = Kind::kNoPath;
    std::size_t route = 0;                // kRoute
    std::vector<std::string> parameters;  // kRoute: what the names in braces took, in order
    std::string allowed;                  // kNoMethod: for the header Allow
  };
  // `segments` as http::Target has them. HEAD is a GET.
  Match match(std::string_view method, const std::vector<std::string>& segments) const;

 private:
  struct Route {
    std::string method;
    std::vector<std::string> segments;  // "" for a name in braces
  };
  std::vector<Route> routes_;
};

}  // namespace caisson::api
