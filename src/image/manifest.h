// The documents that lead from a name to an image's blobs: manifests and indexes as OCI and Docker
// write them, the two files of an OCI layout, and the manifest.json of `docker save`. Everything
// is read strictly and within bounds, since it comes from elsewhere; nothing here opens anything.
// Pure functions.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "image/descriptor.h"

namespace caisson::image {

inline constexpr std::size_t kMaxManifestSize = 4 << 20;  // bytes of JSON
inline constexpr std::size_t kMaxIndexEntries = 1024;

namespace media {
inline constexpr std::string_view kOciManifest = "application/vnd.oci.image.manifest.v1+json";
inline constexpr std::string_view kOciIndex = "application/vnd.oci.image.index.v1+json";
inline constexpr std::string_view kOciConfig = "application/vnd.oci.image.config.v1+json";
inline constexpr std::string_view kOciLayer = "application/vnd.oci.image.layer.v1.tar";
inline constexpr std::string_view kOciLayerGzip = "application/vnd.oci.image.layer.v1.tar+gzip";
inline constexpr std::string_view kOciLayerZstd = "application/vnd.oci.image.layer.v1.tar+zstd";
inline constexpr std::string_view kDockerManifest =
    "application/vnd.docker.distribution.manifest.v2+json";
inline constexpr std::string_view kDockerIndex =
    "application/vnd.docker.distribution.manifest.list.v2+json";
inline constexpr std::string_view kDockerConfig = "application/vnd.docker.container.image.v1+json";
inline constexpr std::string_view kDockerLayer = "application/vnd.docker.image.rootfs.diff.tar";
inline constexpr std::string_view kDockerLayerGzip =
    "application/vnd.docker.image.rootfs.diff.tar.gzip";
inline constexpr std::string_view kDockerLayerZstd =
    "application/vnd.docker.image.rootfs.diff.tar.zstd";
}  // namespace media

// What an index says that an entry is for.
struct Platform {
  std::string os;
  std::string architecture;
  std::string variant;

  // "linux/arm64/v8".
  std::string text() const;
  bool operator==(const Platform&) const = default;
};
// "OS/ARCHITECTURE[/VARIANT]". Error: invalid.
Result<Platform> parse_platform(std::string_view text);
// linux on this machine.
Platform host_platform();

struct Manifest {
  std::string media_type;
  Descriptor config;
  std::vector<Descriptor> layers;  // the lowest first
};

struct IndexEntry {
  Descriptor manifest;               // of a manifest or of another index
  std::optional<Platform> platform;  // absent: the index does not say
  // Annotations of a layout's index: the tag or the whole name that it was stored under.
  std::string reference_name;
};
struct Index {
  std::string media_type;
  std::vector<IndexEntry> entries;
};

// A manifest or an index. `media_type` is what came along with it (a Content-Type, without its
// parameters); empty where nothing did. Error: invalid, also where the two media types differ;
// unimplemented for schema 1, layers that lie elsewhere ("foreign"), encrypted layers, digests
// other than SHA-256, and what is no image at all.
Result<std::variant<Manifest, Index>> parse_manifest(std::string_view text,
                                                     std::string_view media_type = "");

// The entry for `wanted`; without one the error (not_found) says which there are. An entry that
// names no platform is taken where it is the only one. A wanted variant must be there exactly;
// without one, v8 of arm64 and none of the others.
Result<IndexEntry> choose(const Index& index, const Platform& wanted);

// The two files of an OCI layout: `oci-layout` is only checked.
Status check_layout_marker(std::string_view text);
Result<Index> parse_layout_index(std::string_view text);

// One image of a `docker save` archive: names of files of that archive.
struct SavedImage {
  std::string config;
  std::vector<std::string> names;   // "python:3.12", may be none
  std::vector<std::string> layers;  // the lowest first
};
Result<std::vector<SavedImage>> parse_saved_images(std::string_view text);

// A manifest as OCI's JSON, the same text for the same value.
std::string encode(const Manifest& manifest);

// How a layer's blob is packed, by its media type. Nullopt: no layer that this program can read.
enum class LayerPacking { kNone, kGzip, kZstd };
std::optional<LayerPacking> layer_packing(std::string_view media_type);

}  // namespace caisson::image
