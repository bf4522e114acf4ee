// libraries: image policy base
// What a registry or a saved image says about an image: the input as a manifest, an index, a
// layout's marker, docker save's manifest.json, a configuration, and the tar around them. What is
// accepted keeps what the parsers promise, and what is written is read back as the same.
#include <cstddef>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/sha256.h"
#include "image/config.h"
#include "image/manifest.h"
#include "image/transfer/tar_members.h"

namespace caisson::image {
namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const Descriptor& descriptor) {
  require(is_sha256(descriptor.digest));
}

void try_manifest(std::string_view text, std::string_view type) {
  const auto parsed = parse_manifest(text, type);
  if (!parsed.has_value()) {
    require(!parsed.error().message().empty());
    return;
  }
  if (const Index* index = std::get_if<Index>(&*parsed)) {
    require(index->entries.size() <= kMaxIndexEntries);
    for (const IndexEntry& entry : index->entries) check(entry.manifest);
    const auto chosen = choose(*index, {"linux", "amd64", ""});
    require(chosen.has_value() || !chosen.error().message().empty());
    return;
  }
  const Manifest& manifest = std::get<Manifest>(*parsed);
  check(manifest.config);
  require(manifest.config.size <= kMaxConfigSize && manifest.layers.size() <= kMaxLayers);
  for (const Descriptor& layer : manifest.layers) {
    check(layer);
    require(layer_packing(layer.media_type).has_value());
  }
  const auto again = parse_manifest(encode(manifest), manifest.media_type);
  require(again.has_value() && std::get<Manifest>(*again).layers == manifest.layers);
}

void try_config(std::string_view text) {
  const auto config = parse_image_config(text);
  if (!config.has_value()) return;
  for (const std::string& diff_id : config->diff_ids) require(is_sha256(diff_id));
  for (const std::string& word : config->cmd) require(word.find('\0') == std::string::npos);
  const auto again = parse_image_config(encode(*config));
  require(again.has_value() && *again == *config);
}

void try_saved(std::string_view text) {
  const auto images = parse_saved_images(text);
  if (!images.has_value()) return;
  for (const SavedImage& image : *images) {
    require(!image.config.empty() && image.config.front() != '/');
    for (const std::string& layer : image.layers) {
      require(("/" + layer + "/").find("/../") == std::string::npos);
    }
  }
}

void try_tar(std::string_view bytes) {
  const auto members =
      read_tar_members([&](std::uint64_t offset, std::size_t size) -> Result<std::string> {
        require(size <= 64 << 10);
        return offset >= bytes.size() ? std::string() : std::string(bytes.substr(offset, size));
      });
  if (!members.has_value()) return;
  require(members->size() <= kMaxTarMembers + 1);
  for (const auto& [name, member] : *members) {
    const auto found = find_member(*members, name);
    require(!found.has_value() || found->link.empty());
  }
}

}  // namespace
}  // namespace caisson::image

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  using namespace caisson::image;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try_manifest(text, "");
  try_manifest(text, media::kDockerManifest);
  try_manifest(text, media::kOciIndex);
  try_config(text);
  try_saved(text);
  if (!check_layout_marker(text).has_value()) errno = 0;
  try_tar(text);
  return 0;
}
