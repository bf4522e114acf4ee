// A copy of an erofs file whose worker lives on and could still write it: what a step of a build
// mounts. The worker has never had the copy, so it stays what was checked.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::image {

class ErofsCopy {
 public:
  // Copies `rootfs.erofs` of the directory, as the last finish() left it, into a file without a
  // name beside it, and checks the copy (erofs_check.h). Later calls copy only what the file has
  // grown by, and the superblock: our writer changes nothing else that an image needs. The copy,
  // open for reading alone. Error: data_loss for what the check refuses; else the system call's.
  Result<Fd> update(int directory_fd);

 private:
  Fd file_;
  std::uint64_t size_ = 0;  // of what was copied
};

}  // namespace caisson::image
