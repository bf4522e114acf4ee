// libraries: build box egress guest launcher wall image policy base
// parser: src/build/dockerignore.cpp
//
// The patterns of a .dockerignore (up to the first zero byte of the input) and a path (the rest).
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "build/dockerignore.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caisson::build;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::size_t end = bytes.find('\0');
  const std::string path =
      end == std::string_view::npos ? "a/b" : clean_path(bytes.substr(end + 1, 512));
  // What is clean stays as it is.
  if (clean_path(path) != path) std::abort();
  const auto rules = IgnoreRules::parse(bytes.substr(0, end), "x");
  if (!rules.has_value()) {
    if (!rules.error().message().starts_with("x")) std::abort();
    return 0;
  }
  const bool out = rules->ignored(path);
  if (rules->empty() && out) std::abort();
  // Without exceptions whatever lies below an ignored path is ignored too.
  if (out && !rules->has_exceptions() && !path.empty() && !rules->ignored(path + "/x"))
    std::abort();
  return 0;
}
