// libraries: image_unpack image base
// parser: src/image/worker/layer_tree.cpp src/image/worker/flatten.cpp
//
// The tree of names under the erofs writer, without archives: the input as a list of operations,
// four bytes each, on a few names; after each layer the image is read back and must show exactly
// what the tree says is there.
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/fd.h"
#include "image/rootfs_for_test.h"
#include "image/worker/erofs_writer.h"
#include "image/worker/flatten.h"

namespace caisson::image {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

// One to three names of a few, or long ones.
EntryName name_of(std::uint8_t byte) {
  EntryName name;
  for (unsigned parts = 1 + (byte >> 6) % 3; parts > 0;
       --parts, byte = static_cast<std::uint8_t>(byte >> 2 | byte << 6)) {
    if (!name.path.empty()) name.path += '/';
    name.path += (byte & 32) != 0 ? std::string(200, static_cast<char>('a' + (byte & 3)))
                                  : std::string((byte & 3) == 3 ? ".+" : "+") +
                                        static_cast<char>('+' + (byte & 3));
  }
  return name;
}

const char* target_of(std::uint8_t byte) {
  constexpr const char* kTargets[] = {"+", ",", "../-", "/.", "..", "-/+", "/", "./+/,"};
  return kTargets[byte % 8];
}

void check(LayerTree& tree, RootfsWriter& writer, const Fd& image) {
  auto report = writer.finish();
  require(report.has_value());
  const testing::Listing listing =
      testing::ErofsReader(testing::read_whole("/proc/self/fd/" + std::to_string(image.get())))
          .list();
  const std::vector<bool> there = tree.reachable();
  std::size_t count = 0;
  for (NodeId node = 0; node < tree.size(); ++node) {
    if (!there[node]) continue;
    ++count;
    auto found = listing.find(tree.path(node));
    require(found != listing.end());
    require((tree.kind(node) == NodeKind::kDirectory) == S_ISDIR(found->second.mode));
    if (node != kRootNode) require(tree.find(tree.parent(node), tree.name(node)) == node);
  }
  require(count == listing.size() && report->entries + 1 == count);
}

}  // namespace
}  // namespace caisson::image

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caisson::image;
  const caisson::Fd image(memfd_create("image", MFD_CLOEXEC)),
      metadata(memfd_create("metadata", MFD_CLOEXEC));
  LayerTree tree(500);
  ErofsWriter writer(tree, image.get(), metadata.get(), RootfsKind::kWhole);
  Flattener flattener(tree, writer);
  require(writer.begin().has_value() && flattener.begin_layer().has_value());
  for (std::size_t at = 0; at + 4 <= size; at += 4) {
    const EntryName name = name_of(data[at + 1]);
    const EntryAttributes attributes = {.mode = 0600u + data[at + 2] % 64};
    caisson::Status done;
    switch (data[at] % 9) {
      case 0:
        done = flattener.make_directory(name, attributes);
        break;
      case 1:
        done = flattener.make_symlink(name, target_of(data[at + 2]), attributes);
        break;
      case 2:
        done = flattener.make_pipe(name, attributes);
        break;
      case 3:
        done = flattener.make_hard_link(name, name_of(data[at + 2]));
        break;
      case 4:
      case 5: {
        const std::string contents(data[at + 2] * 20u, static_cast<char>(data[at + 3]));
        done = flattener.begin_file(name, contents.size() + data[at + 3], attributes);
        if (!done.has_value()) break;
        require(flattener.write_file(contents, data[at + 3] / 2).has_value());
        require(flattener.end_file().has_value());
        break;
      }
      case 6:
        done = flattener.white_out(name);
        break;
      case 7:
        done = flattener.make_opaque(name);
        break;
      default:
        require(flattener.end_layer().has_value());
        check(tree, writer, image);
        require(flattener.begin_layer().has_value());
    }
    if (!done.has_value()) require(done.error().code() == caisson::Code::kInvalidArgument);
  }
  require(flattener.end_layer().has_value());
  check(tree, writer, image);
  return 0;
}
