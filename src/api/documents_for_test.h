// For tests: what docs/openapi.yaml and docs/api.yaml promise, read by their indentation: the
// documents are our own.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "base/sys.h"

namespace caisson::api {

struct Documented {
  std::set<std::string> operations;  // "GET /path"
  std::set<std::string> responses;   // "GET /path 200"
};

inline void read_document(const char* file, Documented& documented) {
  const Result<std::string> text = sys::read_file(AT_FDCWD, file, 1 << 20);
  ASSERT_TRUE(text.has_value()) << file;
  std::string path, operation;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (line.starts_with("components:")) return;
    if (line.starts_with("  /") && line.ends_with(':')) path = line.substr(2, line.size() - 3);
    for (const char* method : {"GET", "POST", "PUT", "PATCH", "DELETE"}) {
      std::string key = "    " + std::string(method) + ":";
      for (char& c : key) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
      if (line != key) continue;
      operation = std::string(method) + " " + path;
      documented.operations.insert(operation);
    }
    constexpr std::string_view kStatus = "        \"";
    if (line.starts_with(kStatus) && line.substr(kStatus.size() + 3).starts_with("\":"))
      documented.responses.insert(operation + " " + std::string(line.substr(kStatus.size(), 3)));
  }
}

// Caisson's own interface.
inline Documented documented_v1() {
  Documented documented;
  read_document(CAISSON_API_DOCUMENT, documented);
  return documented;
}

inline Documented documented_all() {
  Documented documented = documented_v1();
  read_document(CAISSON_OPENAPI, documented);
  return documented;
}

}  // namespace caisson::api
