#include "policy/inside_path.h"

#include <vector>

namespace caisson::policy {

std::string_view path_fault(std::string_view path) {
  if (path.empty() || path[0] != '/') return "an absolute path";
  if (path.size() >= kMaxPath) return "a path of at most 4095 bytes";
  if (path.find('\0') != std::string_view::npos) return "a path without a NUL byte";
  if (path == "/") return "";
  std::size_t begin = 1;
  while (begin <= path.size()) {
    std::size_t end = path.find('/', begin);
    if (end == std::string_view::npos) end = path.size();
    const std::string_view component = path.substr(begin, end - begin);
    if (component.empty()) return "a path without empty components or a trailing slash";
    if (component == "." || component == "..") return "a path without . and .. components";
    if (component.size() > kMaxComponent) return "a path whose components have at most 255 bytes";
    begin = end + 1;
  }
  return "";
}

std::string_view target_fault(std::string_view path) {
  if (const std::string_view fault = path_fault(path); !fault.empty()) return fault;
  if (path == "/") return "a path below / (the root itself cannot be replaced)";
  for (const std::string_view kernel : {"/proc", "/dev", "/sys"}) {
    if (path == kernel || is_below(path, kernel)) return "a path outside /proc, /dev and /sys";
  }
  return "";
}

bool is_below(std::string_view path, std::string_view directory) {
  if (directory == "/") return path.size() > 1 && path[0] == '/';
  return path.size() > directory.size() + 1 && path.starts_with(directory) &&
         path[directory.size()] == '/';
}

std::string normalised(std::string_view path) {
  const bool absolute = path.starts_with('/');
  std::vector<std::string_view> kept;
  std::size_t begin = 0;
  while (begin <= path.size()) {
    std::size_t end = path.find('/', begin);
    if (end == std::string_view::npos) end = path.size();
    const std::string_view component = path.substr(begin, end - begin);
    begin = end + 1;
    if (component.empty() || component == ".") continue;
    if (component == "..") {
      if (!kept.empty() && kept.back() != "..") {
        kept.pop_back();
        continue;
      }
      if (absolute) continue;
    }
    kept.push_back(component);
  }
  std::string out = absolute ? "/" : "";
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (i > 0) out += '/';
    out += kept[i];
  }
  return out.empty() ? "." : out;
}

}  // namespace caisson::policy
