// Judges an erofs file before root's kernel parses it. The worker that wrote it has read hostile
// bytes, so nothing in the file is believed: every byte that the kernel looks at must be what
// our writer (worker/erofs_writer.h) makes of some tree, and whatever else the format could say is
// refused. Only metadata is read, block by block; contents of files are not.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/error.h"
#include "image/rootfs_kind.h"

namespace caisson::image {

// What a good image holds, as counted here.
struct ErofsCounts {
  std::uint64_t entries = 0;  // names below the root
  std::uint64_t inodes = 0;   // the root among them
};

// Reads `image_fd`, a regular file that nobody may be able to write any more. Checked are:
//   superblock   byte for byte what encode() gives: magic, checksum, blocks of 4 KiB, our features
//                alone, no other device, no compression, no shared attributes; the size is the
//                file's
//   inodes       those that the root leads to, each once (files: as often as their link count
//                says): of 64 bytes, plain or inline, no unknown field or mode, ids below 65536;
//                what they hold lies in the file and overlaps with nothing. Of a delta there may
//                be whiteouts (devices 0:0 with one name, no mode and nobody's) and opaque
//                directories, byte for byte as we mark them; else neither a device nor an attribute
//   directories  entries in order, names that can be names, '.' and '..' right, kinds as in the
//                inodes, one parent each
// Memory: 1/512 of the metadata and 8 bytes a file. Error: data_loss, saying which inode or field
// is wrong; else the system call's.
Result<ErofsCounts> check_erofs(int image_fd, RootfsKind kind);

// That no process (this one too) has the regular file open or mapped for writing, or its
// descriptor under way to one; `image_fd` is open for reading alone. Waits for a worker's end
// for as long as `patience`. Error: internal where somebody still has; a file system without leases
// cannot tell and is taken.
Status expect_no_writer(int image_fd,
                        std::chrono::milliseconds patience = std::chrono::seconds(10));

}  // namespace caisson::image
