// Pulling an image from a registry into the store (OCI distribution specification, Docker's
// registry API v2).
//
// The network is caisson-image-fetch's alone (fetcher.h), a confined process that gets a URL and
// hands back bytes; here it is decided what to ask for, with which credentials, and every byte that
// comes is checked: manifests and blobs by their digests, sizes by what was declared, JSON by the
// parsers of image/manifest.h. Three layers come at once. Two pulls of one image do the work once,
// since a blob is made by one process at a time (Store::begin_blob), and a download that broke goes
// on where it ended. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "image/manifest.h"
#include "image/reference.h"
#include "image/registry/credentials.h"
#include "image/store.h"
#include "image/worker_process.h"
#include "policy/settings.h"

namespace caisson::image {

struct PullLimits {
  std::uint64_t layer = 16ull << 30;  // bytes of one layer's blob
  std::uint64_t total = 64ull << 30;  // of all of an image's blobs
  UnpackLimits unpack;
};

struct PullOptions {
  Platform platform = host_platform();
  policy::Settings settings;
  PullLimits limits;
  std::optional<Credentials> login;  // else what Docker's tools have for the registry
  // What the image is called in the store, and by no other name at any time; empty: as it was asked
  // for.
  std::function<Reference(const std::string& image_id)> named;
};

// One layer's way. `index` counts from 0, the lowest layer.
struct LayerProgress {
  enum class State { kPresent, kLoading, kLoaded };
  std::size_t index = 0;
  std::string_view digest;
  State state = State::kLoading;
  std::uint64_t done = 0, total = 0;  // bytes of the blob
};

// Whoever wants to show how it goes; each may be empty.
struct PullProgress {
  // How many layers and bytes there are; once, before any layer.
  std::function<void(std::size_t layers, std::uint64_t bytes)> begin;
  std::function<void(const LayerProgress&)> layer;
  Progress unpack;
  // A sentence about what is being waited for: "registry.example.com: too many requests, …".
  std::function<void(const std::string&)> note;
};

struct PullReport {
  Reference reference;          // as it is in the store now
  std::string image_id;         // 64 hexadecimal digits
  std::string manifest_digest;  // of this platform's manifest
  std::size_t layers = 0;
  std::uint64_t bytes = 0;       // of all layers' blobs
  std::uint64_t downloaded = 0;  // of them, those that came over the network now
};

// After an error the store holds nothing new but blobs, whole ones and begun ones, which a next
// pull uses. Error: invalid for a short name without default_registry (it says which setting to
// make); not_found; unauthenticated; permission_denied; unavailable after the last try; data_loss
// where bytes do not have their digest.
Result<PullReport> pull(Store& store, const Reference& reference, const PullOptions& options,
                        const PullProgress& progress);

}  // namespace caisson::image
