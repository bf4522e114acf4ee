#include "api/e2b/path.h"

#include <vector>

namespace caisson::api::e2b {

namespace {

Status append_segments(std::vector<std::string_view>& segments, std::string_view path) {
  if (path.find('\0') != std::string_view::npos) {
    return fail(Error::invalid("a path has no zero bytes"));
  }
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    const std::string_view segment = path.substr(0, slash);
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
    if (segment.empty() || segment == ".") continue;
    if (segment == "..") {
      if (!segments.empty()) segments.pop_back();
      continue;
    }
    if (segment.size() > kMaxName) {
      return fail(Error::invalid("a name in the path has " + std::to_string(segment.size()) +
                                 " bytes; " + std::to_string(kMaxName) + " are allowed"));
    }
    segments.push_back(segment);
  }
  return {};
}

}  // namespace

bool needs_home(std::string_view given, std::string_view workdir) {
  if (given.starts_with('/')) return false;
  return given.starts_with('~') || workdir.empty();
}

Result<std::string> resolve_path(std::string_view given, const PathBase& base) {
  std::vector<std::string_view> segments;
  if (given.starts_with('~')) {
    if (given.size() > 1 && given[1] != '/') {
      return fail(Error::invalid("cannot expand another user's home directory: '" +
                                 std::string(given.substr(0, given.find('/'))) +
                                 "'; '~' alone is the caller's own"));
    }
    TRY(append_segments(segments, base.home));
    given.remove_prefix(1);
  } else if (!given.starts_with('/')) {
    TRY(append_segments(segments, base.workdir.empty() ? base.home : base.workdir));
  }
  TRY(append_segments(segments, given));
  std::string path;
  for (const std::string_view segment : segments) {
    path += '/';
    path += segment;
    if (path.size() > kMaxPath) {
      return fail(Error::invalid("the path is longer than " + std::to_string(kMaxPath) + " bytes"));
    }
  }
  if (path.empty()) path = "/";
  return path;
}

std::string_view base_name(std::string_view path) {
  if (path == "/") return path;
  return path.substr(path.rfind('/') + 1);
}

}  // namespace caisson::api::e2b
