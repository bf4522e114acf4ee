// libraries: wall
// parser: src/wall/namespace/java_trust.cpp
//
// An image's bundle of certificates, which may be anything, as Java's form of it. What comes out is
// read here as Java reads it: as many whole entries as its head says, and a digest at the end.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "wall/namespace/java_trust.h"

namespace {

using namespace caisson;  // NOLINT: a program of one file

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  std::uint32_t number(std::size_t size) {
    std::uint32_t value = 0;
    for (const char c : take(size)) value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }
  std::string_view take(std::size_t size) {
    VERIFY(bytes_.size() >= size);
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }
  std::size_t left() const { return bytes_.size(); }

 private:
  std::string_view bytes_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto store = wall::java_trust_store(text);
  if (!store.has_value()) {
    VERIFY(store.error().code() == Code::kInvalidArgument);
    return 0;
  }
  Reader reader(*store);
  VERIFY(reader.number(4) == 0xfeedfeed && reader.number(4) == 2);
  const std::uint32_t count = reader.number(4);
  VERIFY(count <= 4096);
  for (std::uint32_t entry = 1; entry <= count; ++entry) {
    VERIFY(reader.number(4) == 2);
    VERIFY(reader.take(reader.number(2)) == "authority-" + std::to_string(entry));
    reader.take(8);
    VERIFY(reader.take(reader.number(2)) == "X.509");
    const std::uint32_t length = reader.number(4);
    VERIFY(length > 0 && length <= 64 * 1024 && reader.take(length).starts_with('\x30'));
  }
  VERIFY(reader.left() == 20);
  return 0;
}
