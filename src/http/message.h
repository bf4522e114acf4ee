// HTTP/1.1 messages as values: RFC 9110 and 9112, the strict reading.
//
// Names and values are checked by whoever makes them (http/codec.h refuses what is malformed, in
// both directions), so code that holds a Headers need not look again.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace caisson::http {

// In the order in which they came; names are kept as they came and compared without case.
class Headers {
 public:
  Headers() = default;
  Headers(std::initializer_list<std::pair<std::string_view, std::string_view>> list);

  // The first of that name; nullopt: none.
  std::optional<std::string_view> get(std::string_view name) const;
  bool has(std::string_view name) const { return get(name).has_value(); }
  // All of that name, joined by ", ".
  std::string joined(std::string_view name) const;
  Headers& add(std::string_view name, std::string_view value);
  // In place of all of that name.
  Headers& set(std::string_view name, std::string_view value);
  Headers& remove(std::string_view name);
  const std::vector<std::pair<std::string, std::string>>& all() const { return all_; }

 private:
  std::vector<std::pair<std::string, std::string>> all_;
};

struct RequestHead {
  std::string method;  // a token, as it came: methods know case
  std::string target;  // in origin form ("/a?b"), or absolute or "*" as it came
  Headers headers;
  int minor_version = 1;  // HTTP/1.0 or 1.1
};

struct ResponseHead {
  int status = 200;
  std::string reason;  // may be empty; on our side it follows from the status
  Headers headers;
  int minor_version = 1;
};

// "Not Found" for 404; "" for what has no name.
std::string_view reason_of(int status);

// A target split and decoded: what handlers look at.
struct Target {
  std::string path;  // decoded, beginning with "/"; its segments split at "/" before decoding
  // Decoded one by one: "/a%2Fb/c" has two, "/a/" has "a" and "", "/" has none.
  std::vector<std::string> segments;
  std::vector<std::pair<std::string, std::string>> query;  // decoded ("+" is a space), in order

  // The first of that name; nullopt: none.
  std::optional<std::string_view> query_value(std::string_view name) const;
};
// nullopt: malformed escapes, a zero byte, or no path.
std::optional<Target> parse_target(std::string_view target);

}  // namespace caisson::http
