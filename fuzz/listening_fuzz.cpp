// libraries: api
// parser: src/api/v1/listening.cpp
//
// The table of sockets of a sandbox, which is the sandbox's own text.
#include "api/v1/listening.h"
#include "base/error.h"

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto found = caisson::api::v1::listening_ports(text);
  VERIFY(found.size() <= 1000);
  for (const auto& one : found) {
    VERIFY(one.port != 0);
    VERIFY(!one.address.empty());
  }
  return 0;
}
