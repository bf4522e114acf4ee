// libraries: image_unpack image base
// The image worker's parser: first the input as an archive, into a destination in memory that
// checks what the extractor promises it; then the same input as an entry's name.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>

#include "image/ids.h"
#include "image/worker/entry_name.h"
#include "image/worker/unpack.h"

namespace caisson::image {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

// What every name must be, whatever the archive says.
void check_name(const EntryName& name) {
  require(name.path.size() <= kMaxEntryName);
  require(name.path.find('\0') == std::string::npos);
  if (name.is_root()) return;
  std::size_t depth = 0;
  for (std::string_view rest = name.path;;) {
    const std::size_t slash = rest.find('/');
    const std::string_view component = rest.substr(0, slash);
    require(!component.empty() && component != "." && component != "..");
    require(component.size() <= kMaxEntryComponent);
    require(++depth <= kMaxEntryDepth);
    if (slash == std::string_view::npos) break;
    rest.remove_prefix(slash + 1);
  }
  require(name.parent().empty()
              ? name.path == name.last()
              : name.path == std::string(name.parent()) + "/" + std::string(name.last()));
}

class MemoryDestination final : public Destination {
 public:
  explicit MemoryDestination(const UnpackLimits& limits) : limits_(limits) {}

  Status make_directory(const EntryName& name, const EntryAttributes& attributes) override {
    return take(name, attributes);
  }
  Status make_symlink(const EntryName& name, std::string_view target,
                      const EntryAttributes& attributes) override {
    require(!name.is_root() && !target.empty() && target.size() <= 4095);
    return take(name, attributes);
  }
  Status make_fifo(const EntryName& name, const EntryAttributes& attributes) override {
    require(!name.is_root());
    return take(name, attributes);
  }
  Status make_hard_link(const EntryName& name, const EntryName& target) override {
    check_name(target);
    require(!name.is_root() && !target.is_root() && name.path != target.path);
    if (!entries_.contains(target.path)) return fail(Error::invalid("no such entry"));
    return take(name, {});
  }
  Status begin_file(const EntryName& name) override {
    require(!open_ && !name.is_root());
    open_ = true;
    position_ = 0;
    return take(name, {});
  }
  Status write_file(std::string_view bytes, std::uint64_t offset) override {
    require(open_ && offset >= position_);
    // Every byte must be there to be read.
    for (char byte : bytes) sum_ += static_cast<unsigned char>(byte);
    position_ = offset + bytes.size();
    require(position_ <= limits_.bytes);
    return {};
  }
  Status end_file(std::uint64_t size, const EntryAttributes& attributes) override {
    require(open_ && position_ <= size);
    open_ = false;
    total_ += size;
    require(total_ <= limits_.bytes);
    check_attributes(attributes);
    return {};
  }
  Status finish() override {
    require(!open_);
    return {};
  }

 private:
  static void check_attributes(const EntryAttributes& attributes) {
    require(attributes.uid < kImageIds && attributes.gid < kImageIds);
    require((attributes.mode & ~07777u) == 0);
    require(attributes.modified.tv_nsec >= 0 && attributes.modified.tv_nsec < 1'000'000'000);
  }
  Status take(const EntryName& name, const EntryAttributes& attributes) {
    check_name(name);
    check_attributes(attributes);
    entries_[name.path] += 1;
    require(entries_.size() <= limits_.entries);
    return {};
  }

  const UnpackLimits& limits_;
  std::map<std::string, int> entries_;
  bool open_ = false;
  std::uint64_t position_ = 0, total_ = 0;
  unsigned sum_ = 0;
};

// Hands the input out in pieces, the first byte of which chooses their size.
class FuzzInput final : public ArchiveInput {
 public:
  explicit FuzzInput(std::string_view bytes)
      : rest_(bytes), piece_(bytes.empty() ? 1 : 1 + 16 * static_cast<unsigned char>(bytes[0])) {}
  Result<std::string_view> read() override {
    const std::string_view piece = rest_.substr(0, piece_);
    rest_.remove_prefix(piece.size());
    return piece;
  }

 private:
  std::string_view rest_;
  std::size_t piece_;
};

}  // namespace
}  // namespace caisson::image

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caisson::image;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  UnpackLimits limits;
  limits.entries = 1000;
  limits.bytes = 1 << 24;
  limits.ratio = 100;
  FuzzInput input(bytes);
  MemoryDestination destination(limits);
  auto report = unpack(input, destination, limits);
  if (report.has_value()) require(report->entries > 0 && report->entries <= limits.entries);
  if (auto name = parse_entry_name(bytes); name.has_value()) check_name(*name);
  return 0;
}
