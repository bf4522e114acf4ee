// libraries: api
// parser: src/api/e2b/path.cpp
//
// Paths of the data plane: what comes out is absolute and normal, within the limits, and resolving
// it again changes nothing. The input is "HOME\nWORKDIR\nPATH".
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "api/e2b/path.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caisson;
  using namespace caisson::api::e2b;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t first = input.find('\n');
  const std::size_t second = first == input.npos ? first : input.find('\n', first + 1);
  if (second == input.npos) return 0;
  const PathBase base = {std::string(input.substr(0, first)),
                         std::string(input.substr(first + 1, second - first - 1))};
  const std::string_view given = input.substr(second + 1);
  const Result<std::string> path = resolve_path(given, base);
  if (!path) return 0;
  if (!path->starts_with('/') || path->size() > kMaxPath) std::abort();
  if (path->size() > 1 && path->ends_with('/')) std::abort();
  if ((*path + "/").find("/../") != std::string::npos) std::abort();
  if (path->find("//") != std::string::npos) std::abort();
  if (resolve_path(*path, {"/x", "/y"}).value() != *path) std::abort();
  if (!needs_home(given, base.workdir) &&
      resolve_path(given, {"/elsewhere", base.workdir}).value() != *path)
    std::abort();
  if (base_name(*path).empty()) std::abort();
  return 0;
}
