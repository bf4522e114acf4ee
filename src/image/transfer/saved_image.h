// Images in files: OCI layouts (a directory, or a plain tar of one) and the archives of `docker
// save`, into the store and out of it. Their JSON is read by image/manifest.h, the tar around it by
// tar_members.h; layers are copied as they are and checked by their digests, and only
// caisson-image-worker looks into them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "image/manifest.h"
#include "image/store.h"
#include "image/worker_process.h"

namespace caisson::image {

enum class SavedForm { kLayout, kDockerArchive };

struct SavedImport {
  std::vector<Reference> references;  // its names in the store now
  std::string image_id;
  std::size_t layers = 0;
  std::uint64_t bytes = 0;  // of the layers' blobs
};

// What `file_fd` (a directory or a file that can be read from its start) is; nullopt: no saved
// image, so probably the tar of a root file system. A compressed archive is never taken for one.
std::optional<SavedForm> detect_saved_form(int file_fd);

// `archive` where it is a regular file or a directory, else (a pipe) a nameless copy of it in the
// store's folder. Error: invalid where it is empty or larger than `limit` bytes.
Result<Fd> as_file(const Store& store, Fd archive, std::uint64_t limit);

// All images in it. They are called as the file says; with `name` there must be one image, and that
// is its name. Of an image for several platforms this machine's is taken. Error: invalid with what
// is wrong where; not_found for what is missing; data_loss where bytes do not have their digest.
Result<std::vector<SavedImport>> import_saved(Store& store, SavedForm form, int file_fd,
                                              const std::optional<Reference>& name,
                                              const UnpackLimits& limits, const Progress& progress);

// Writes the image as a tar: an OCI layout, or what `docker load` takes. Error: not_found;
// unimplemented for a layer compressed in a way that the form does not know.
Status export_image(Store& store, const std::string& name, SavedForm form, int output_fd);

}  // namespace caisson::image
