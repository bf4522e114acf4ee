// The changes that a sandbox made over its image: the upper directory of its overlay, which
// outlives it for as long as the descriptor here is open.
//
// The file system (a tmpfs of the sandbox's, or the ext4 of `layer: quota`) is mounted nowhere that
// has a name; the last descriptor takes it along, with its memory or its loop device. What lies in
// it is hostile: it belongs to ids that the sandbox chose among its own and may be anything (links,
// FIFOs, names of any bytes, directories of any depth), and while the sandbox lives it changes.
// Open beneath the descriptor, without following links, and nothing but regular files for reading.
#pragma once

#include <string>

#include "base/fd.h"

namespace caisson::image {

struct KeptLayer {
  KeptLayer() = default;
  KeptLayer(KeptLayer&&) noexcept = default;
  KeptLayer& operator=(KeptLayer&& other) noexcept;
  // Closes it. With `vanishes` nothing of it is written to disk any more; a sandbox that still
  // runs on it is left without a disk.
  ~KeptLayer();

  // O_RDONLY; the root of a read-only mount of its own, so that ".." leads nowhere.
  Fd directory;
  // A sealed file: what set-up itself made in there (image/layer_record.h).
  Fd record;
  // "inside outside count" lines, as uid_map(5) wants them: the image's id k, and the host id that
  // is k's in this layer. An ordinary user without a range of ids has one line for one id.
  std::string uid_lines, gid_lines;
  // The overlay kept its notes in trusted.overlay.* attributes, which only the host's root can
  // read, and not in user.overlay.*.
  bool trusted_attributes = false;
  // The directory lies in a file system on disk that ends with this object (layer: quota). Never
  // set it for a file system that anybody else uses.
  bool vanishes = false;
};

}  // namespace caisson::image
