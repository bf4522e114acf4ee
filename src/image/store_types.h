// What an image consists of, as the store and those who work with it name it: blobs by their
// SHA-256, layers, the root file system that they make, the record that ties them together. Plain
// values; the text forms of what the store keeps on disk are here too. Pure.
//
// Digests are 64 lower-case hexadecimal digits everywhere inside (is_sha256()); "sha256:" belongs
// to JSON and to messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "image/ids.h"
#include "image/layer.h"
#include "image/rootfs_worker.h"

namespace caisson::image {

// What only `caisson image import` makes: a tar compressed with xz, kept as it was given.
inline constexpr std::string_view kXzLayer = "application/vnd.caisson.image.layer.v1.tar+xz";

// The chain id (OCI image specification) of layers, bottom first; of none, the SHA-256 of nothing.
std::string chain_id(const std::vector<LayerRef>& layers);

std::string_view to_string(RootfsForm form);

// What the store knows about the root file system of one chain: rootfs/CHAIN/info.
struct RootfsInfo {
  std::string chain;
  // The chain of what it lies over, where it is a delta: the chain's last layer alone. Empty: it is
  // whole. Counts and sizes are its own.
  std::string below;
  RootfsForm form = RootfsForm::kDirectory;
  IdMapping ids;  // kErofs: whom it was made by; the file itself has the ids of the image
  std::uint64_t entries = 0;
  std::uint64_t bytes = 0;       // of the files' contents
  std::uint64_t disk_bytes = 0;  // that it takes, as far as known

  std::string encode() const;
  static Result<RootfsInfo> decode(std::string_view text);
  // For the launch plan: on-disk id of the image's uid 0 in a root store's directory, else 0.
  std::uint32_t disk_base() const {
    return form == RootfsForm::kDirectory && ids.layout == IdLayout::kShifted ? ids.uid_base : 0;
  }
};

// What the store knows about one image: ids/IMAGEID.
struct ImageRecord {
  std::string id;        // SHA-256 of the config
  std::string chain;     // of the layers
  std::string manifest;  // digest of the manifest's blob; empty: there was none
  std::uint64_t config_size = 0;
  std::vector<LayerRef> layers;  // bottom first

  std::uint64_t layer_bytes() const;  // of all layers as they are kept
  std::string encode() const;
  static Result<ImageRecord> decode(std::string_view text);
};

// refs/NAME: which image a name means.
struct ReferenceRecord {
  std::string image_id;
  std::int64_t set_at = 0;  // seconds since 1970

  std::string encode() const;
  // Error: precondition for one of the store's first format, whose image has to be imported again.
  static Result<ReferenceRecord> decode(std::string_view text);
};

// Of the store's first format, whose files are by-digest/DIGEST/…: the digest that the file of a
// name has (empty: it is of another format), and the bytes that an info file counts.
std::string first_format_digest(std::string_view reference_text);
std::uint64_t first_format_bytes(std::string_view info_text);

// cache/KEY: the result of a build step.
struct CacheRecord {
  std::string image_id;

  std::string encode() const;
  static Result<CacheRecord> decode(std::string_view text);
};

// A new image, its layers' blobs in the store already.
struct ImageContent {
  std::string config;            // JSON, kept as a blob byte for byte: its digest is the image's id
  std::vector<LayerRef> layers;  // bottom first; each diff_id as in the config
  std::string manifest;          // raw, kept as a blob; empty: there is none
};

}  // namespace caisson::image
