// libraries: image policy base
// parser: src/image/config.cpp src/image/manifest.cpp src/image/json_fields.cpp
// parser: src/image/transfer/tar_members.cpp
//
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
    for (const Platform& wanted :
         {host_platform(), Platform{"linux", "arm64", ""}, Platform{"linux", "arm", "v7"}}) {
      const auto chosen = choose(*index, wanted);
      require(chosen.has_value() || !chosen.error().message().empty());
      if (chosen.has_value() && chosen->platform.has_value())
        require(chosen->platform->architecture == wanted.architecture);
    }
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

void try_platform(std::string_view text) {
  const auto platform = parse_platform(text);
  if (platform.has_value()) require(platform->text() == text);
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

// A file of that name and size, as we write one, is read as that.
void try_saved_again(const std::string& name, const TarMember& member) {
  if (name.size() > 100 || name.contains('\0') || member.size > 1u << 20) return;
  const std::string archive = saved_tar_header(name, member.size) +
                              std::string(static_cast<std::size_t>(member.size), 'x') +
                              saved_tar_padding(member.size) + saved_tar_end();
  const auto members = read_tar_members([&](std::uint64_t offset, std::size_t size) {
    return Result<std::string>(offset >= archive.size()
                                   ? std::string()
                                   : archive.substr(static_cast<std::size_t>(offset), size));
  });
  require(members.has_value() && members->size() == 1);
  require(members->begin()->first == name && members->begin()->second.size == member.size);
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
    if (found.has_value()) try_saved_again(name, *found);
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
  try_platform(text);
  if (const auto index = parse_layout_index(text); index.has_value())
    require(index->entries.size() <= kMaxIndexEntries);
  if (!check_layout_marker(text).has_value()) errno = 0;
  try_tar(text);
  return 0;
}
