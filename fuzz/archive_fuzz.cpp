// libraries: image_unpack image base
// parser: src/image/worker/unpack.cpp src/image/worker/entry_name.cpp
// parser: src/image/worker/uncompress.cpp src/image/worker/flatten.cpp
// parser: src/image/worker/layer_tree.cpp src/image/worker/delta.cpp
//
// The image worker's parser: the input as layers, flattened first into an erofs image, which is
// read back and checked to the last byte, then, every now and then, into a directory, which must
// come out the same; its last layer as a delta, which must pass the store's check; and the input as
// an entry's name. A byte 0xff at the beginning and the next one say where the input is cut into
// two layers. A layer that breaks off is never taken for another one.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "image/archive_for_test.h"
#include "image/erofs_check.h"
#include "image/files.h"
#include "image/ids.h"
#include "image/rootfs_for_test.h"
#include "image/worker/delta.h"
#include "image/worker/directory_writer.h"
#include "image/worker/entry_name.h"
#include "image/worker/erofs_writer.h"
#include "image/worker/flatten.h"
#include "image/worker/uncompress.h"

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

// Passes everything on, after checking what the reader promises.
class CheckingSink final : public EntrySink {
 public:
  CheckingSink(EntrySink& next, const UnpackLimits& limits) : next_(next), limits_(limits) {}

  Status make_directory(const EntryName& name, const EntryAttributes& attributes) override {
    check(name, attributes, true);
    return next_.make_directory(name, attributes);
  }
  Status make_symlink(const EntryName& name, std::string_view target,
                      const EntryAttributes& attributes) override {
    check(name, attributes);
    require(!target.empty() && target.size() <= 4095);
    return next_.make_symlink(name, target, attributes);
  }
  Status make_pipe(const EntryName& name, const EntryAttributes& attributes) override {
    check(name, attributes);
    return next_.make_pipe(name, attributes);
  }
  Status make_hard_link(const EntryName& name, const EntryName& target) override {
    check(name, {});
    check(target, {});
    require(name.path != target.path);
    return next_.make_hard_link(name, target);
  }
  Status begin_file(const EntryName& name, std::uint64_t size,
                    const EntryAttributes& attributes) override {
    check(name, attributes);
    open_ = true;
    position_ = 0;
    size_ = size;
    total_ += size;
    require(total_ <= limits_.bytes);
    return next_.begin_file(name, size, attributes);
  }
  Status write_file(std::string_view bytes, std::uint64_t offset) override {
    require(open_ && offset >= position_ && offset + bytes.size() <= size_);
    position_ = offset + bytes.size();
    return next_.write_file(bytes, offset);
  }
  Status end_file() override {
    require(open_);
    open_ = false;
    return next_.end_file();
  }
  Status white_out(const EntryName& name) override {
    check(name, {});
    return next_.white_out(name);
  }
  Status make_opaque(const EntryName& directory) override {
    check(directory, {}, true);
    return next_.make_opaque(directory);
  }

 private:
  void check(const EntryName& name, const EntryAttributes& attributes, bool may_be_root = false) {
    require(!open_);
    check_name(name);
    require(may_be_root || !name.is_root());
    require(attributes.uid < kImageIds && attributes.gid < kImageIds);
    require((attributes.mode & ~07777u) == 0);
    require(attributes.modified.tv_nsec >= 0 && attributes.modified.tv_nsec < 1'000'000'000);
    require(++entries_ <= limits_.entries);
  }

  EntrySink& next_;
  const UnpackLimits& limits_;
  bool open_ = false;
  std::uint64_t position_ = 0, size_ = 0, total_ = 0, entries_ = 0;
};

// Hands the input out in pieces, the first byte of which chooses their size.
class FuzzInput final : public ArchiveInput {
 public:
  explicit FuzzInput(std::string_view bytes)
      : rest_(bytes), piece_(bytes.empty() ? 1 : 1 + 16 * static_cast<unsigned char>(bytes[0])) {}
  FuzzInput(std::string_view bytes, Error end) : FuzzInput(bytes) { end_ = std::move(end); }

  Result<std::string_view> read() override {
    if (rest_.empty() && end_.has_value()) return fail(*end_);
    const std::string_view piece = rest_.substr(0, piece_);
    rest_.remove_prefix(piece.size());
    return piece;
  }

 private:
  std::string_view rest_;
  std::size_t piece_;
  std::optional<Error> end_;
};

// Whether all layers are taken.
bool apply(LayerSink& flattener, const UnpackLimits& limits,
           const std::vector<std::string_view>& layers) {
  CheckingSink sink(flattener, limits);
  UnpackReport before;
  for (std::string_view layer : layers) {
    FuzzInput input(layer);
    Uncompressed tar(input, limits.ratio);
    require(flattener.begin_layer().has_value());
    auto report = read_layer(tar, sink, limits, before);
    if (!report.has_value()) return false;
    require(flattener.end_layer().has_value());
    before.entries += report->counts.entries;
    before.bytes += report->counts.bytes;
    require(before.entries <= limits.entries && before.bytes <= limits.bytes);
  }
  return true;
}

bool flatten(LayerTree& tree, RootfsWriter& writer, const UnpackLimits& limits,
             const std::vector<std::string_view>& layers) {
  Flattener flattener(tree, writer);
  return apply(flattener, limits, layers);
}

std::string path_of(const Fd& fd) {
  return "/proc/self/fd/" + std::to_string(fd.get());
}

// The same layers into a directory: they are taken too, and the same is there.
void compare_directory(const testing::Listing& expected, const UnpackLimits& limits,
                       const std::vector<std::string_view>& layers) {
  testing::TemporaryDirectory directory;
  const Fd root = open_or_make_directory(directory / "root").value();
  require(fchmod(root.get(), 0755) == 0);
  LayerTree tree(limits.entries);
  DirectoryWriter writer(tree, root.get(), IdLayout::kSingle);
  require(flatten(tree, writer, limits, layers));
  require(writer.finish().has_value());
  testing::Listing found = testing::list_tree(directory / "root");
  for (auto& [name, file] : found) {
    auto same = expected.find(name);
    require(same != expected.end());
    file.uid = same->second.uid;
    file.gid = same->second.gid;
    // What a host's file system makes of times of other ages is its own affair.
    file.seconds = same->second.seconds;
    file.nanoseconds = same->second.nanoseconds;
  }
  require(found == expected);
}

void check_delta(const UnpackLimits& limits, std::string_view layer) {
  const Fd image(memfd_create("image", MFD_CLOEXEC)),
      metadata(memfd_create("metadata", MFD_CLOEXEC));
  LayerTree tree(limits.entries);
  ErofsWriter writer(tree, image.get(), metadata.get(), RootfsKind::kDelta);
  require(writer.begin().has_value());
  DeltaLayer delta(tree, writer, 0755);
  if (!apply(delta, limits, {layer})) return;
  auto report = writer.finish();
  require(report.has_value());
  auto counts = check_erofs(image.get(), RootfsKind::kDelta);
  require(counts.has_value() && counts->entries == report->entries);
  const testing::Listing listing = testing::ErofsReader(testing::read_whole(path_of(image))).list();
  require(listing.size() == report->entries + 1);
}

// The digest of what is read of a layer; nullopt: it is refused.
std::optional<std::string> digest_of(ArchiveInput& input, const UnpackLimits& limits) {
  const Fd image(memfd_create("image", MFD_CLOEXEC)),
      metadata(memfd_create("metadata", MFD_CLOEXEC));
  LayerTree tree(limits.entries);
  ErofsWriter writer(tree, image.get(), metadata.get(), RootfsKind::kWhole);
  require(writer.begin().has_value());
  Flattener flattener(tree, writer);
  require(flattener.begin_layer().has_value());
  Uncompressed tar(input, limits.ratio);
  const auto report = read_layer(tar, flattener, limits, {});
  if (!report.has_value()) return std::nullopt;
  return report->diff_id;
}

// A layer whose end cannot be read is refused, whatever is said about it, unless all of it was
// there before: behind the end of what is compressed nothing is looked at.
void check_broken_off(const UnpackLimits& limits, std::string_view layer) {
  FuzzInput broken(layer, layer.size() % 8 == 0 ? Error::unavailable("broken off")
                                                : Error::invalid("broken off"));
  const auto read = digest_of(broken, limits);
  if (!read.has_value()) return;
  FuzzInput whole(layer);
  require(digest_of(whole, limits) == read);
}

}  // namespace
}  // namespace caisson::image

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caisson::image;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  UnpackLimits limits;
  limits.entries = 1000;
  limits.bytes = 1 << 24;
  limits.ratio = 100;
  std::vector<std::string_view> layers = {bytes};
  if (size >= 2 && data[0] == 0xff) {
    const std::size_t cut = std::min<std::size_t>(512u * data[1], size - 2);
    layers = {bytes.substr(2, cut), bytes.substr(2 + cut)};
  }
  check_delta(limits, layers.back());
  if (size % 4 == 0) check_broken_off(limits, layers.back());
  const caisson::Fd image(memfd_create("image", MFD_CLOEXEC)),
      metadata(memfd_create("metadata", MFD_CLOEXEC));
  LayerTree tree(limits.entries);
  ErofsWriter writer(tree, image.get(), metadata.get(), RootfsKind::kWhole);
  require(writer.begin().has_value());
  if (!flatten(tree, writer, limits, layers)) {
    if (auto name = parse_entry_name(bytes); name.has_value()) check_name(*name);
    return 0;
  }
  auto report = writer.finish();
  require(report.has_value());
  const testing::Listing listing = testing::ErofsReader(testing::read_whole(path_of(image))).list();
  require(listing.size() == report->entries + 1);
  // Making and removing files takes a hundred times as long: one in sixteen.
  std::uint8_t sum = 0;
  for (std::size_t i = 0; i < size; ++i) sum = static_cast<std::uint8_t>(sum + data[i]);
  if (sum % 16 == 0) compare_directory(listing, limits, layers);
  return 0;
}
