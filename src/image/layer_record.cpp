#include "image/layer_record.h"

#include <type_traits>
#include <utility>

namespace caisson::image {
namespace {

// "CLR1", then for each entry its path's length and bytes and the numbers in transfer()'s order,
// little-endian.
constexpr std::string_view kMagic = "CLR1";
constexpr std::size_t kMostPath = 4096;

template <typename Archive, typename Entry>
void transfer(Archive& archive, Entry& entry) {
  archive.number(entry.inode);
  archive.number(entry.mode);
  archive.number(entry.uid);
  archive.number(entry.gid);
  archive.number(entry.size);
  archive.number(entry.mtime_s);
  archive.number(entry.mtime_ns);
  archive.flag(entry.opaque);
}

class Writer {
 public:
  template <typename T>
  void number(const T& value) {
    const auto bits = static_cast<std::uint64_t>(value);
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(bits >> (8 * i) & 0xff);
  }
  void flag(const bool& value) { bytes += value ? '\1' : '\0'; }
  std::string bytes;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : left(bytes) {}
  template <typename T>
  void number(T& value) {
    std::uint64_t bits = 0;
    const std::string_view found = take(sizeof(T));
    for (std::size_t i = 0; i < found.size(); ++i)
      bits |= static_cast<std::uint64_t>(static_cast<unsigned char>(found[i])) << (8 * i);
    value = static_cast<T>(bits);
  }
  void flag(bool& value) {
    std::uint8_t byte = 0;
    number(byte);
    whole = whole && byte <= 1;
    value = byte == 1;
  }
  std::string_view take(std::size_t count) {
    if (count > left.size()) {
      whole = false;
      return {};
    }
    const std::string_view found = left.substr(0, count);
    left.remove_prefix(count);
    return found;
  }
  std::string_view left;
  bool whole = true;
};

}  // namespace

std::string encode_record(const LayerRecord& record) {
  Writer writer;
  writer.bytes = kMagic;
  for (const auto& [path, entry] : record) {
    writer.number(static_cast<std::uint16_t>(path.size()));
    writer.bytes += path;
    transfer(writer, entry);
  }
  return std::move(writer.bytes);
}

Result<LayerRecord> decode_record(std::string_view bytes) {
  Reader reader(bytes);
  reader.whole = reader.take(kMagic.size()) == kMagic;
  LayerRecord record;
  while (reader.whole && !reader.left.empty()) {
    std::uint16_t length = 0;
    reader.number(length);
    std::string path(reader.take(length));
    RecordedEntry entry;
    transfer(reader, entry);
    reader.whole =
        reader.whole && length <= kMostPath && record.emplace(std::move(path), entry).second;
  }
  if (!reader.whole)
    return fail(Error(Code::kDataLoss, "the record of what set-up made is malformed"));
  return record;
}

}  // namespace caisson::image
