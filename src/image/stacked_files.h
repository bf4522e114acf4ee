// Files of an image whose root file systems lie over one another, as the overlay of a sandbox will
// show them, for who needs one before there is a sandbox.
//
// A name is looked for in the uppermost root first. A whiteout hides it, a directory is merged with
// those of the same name below it down to one that is opaque (rootfs_kind.h), anything else hides
// what is below. Links are followed inside the image, never out of it. What is there is hostile: at
// most 40 links of 4096 bytes together, 256 names on the way and 64 levels at a time, so that a
// look-up is done in milliseconds whatever links lead to. Any thread.
#pragma once

#include <span>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::image {

// Opens the regular file for reading; the descriptors are of root directories, the uppermost first.
// Error: not_found, also where a directory is in the way that this user may not look into; invalid
// where it is no regular file; resource_exhausted where a bound is reached, which it names.
Result<Fd> open_stacked_file(std::span<const int> root_fds, std::string_view path);

}  // namespace caisson::image
