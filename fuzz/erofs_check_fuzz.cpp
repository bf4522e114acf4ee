// libraries: image base
// What root's kernel is to mount: the input as an image file, with the checksum made right. What
// the check takes, as a whole root file system or as a delta, a strict reader of the tests must
// take as well (it ends the program otherwise), and what is whole could be a delta too.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/fd.h"
#include "image/erofs_check.h"
#include "image/rootfs_for_test.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caisson::image;
  std::string image(reinterpret_cast<const char*>(data), size);
  // Whole blocks, so that a mutation of the length is not the end of it.
  image.resize((image.size() + erofs::kBlock - 1) / erofs::kBlock * erofs::kBlock);
  if (image.size() >= erofs::kBlock) {
    char* super = image.data() + erofs::kSuperOffset;
    erofs::put32(super + 4, 0);
    erofs::put32(super + 4, erofs::crc32c({super, erofs::kBlock - erofs::kSuperOffset}));
  }
  const caisson::Fd file(memfd_create("image", MFD_CLOEXEC));
  if (write(file.get(), image.data(), image.size()) != static_cast<ssize_t>(image.size())) abort();
  const auto whole = check_erofs(file.get(), RootfsKind::kWhole);
  const auto checked = check_erofs(file.get(), RootfsKind::kDelta);
  if (whole.has_value() && !checked.has_value()) abort();
  if (!checked.has_value()) {
    if (checked.error().code() != caisson::Code::kDataLoss) abort();
    return 0;
  }
  const testing::Listing listing = testing::ErofsReader(image).list();
  if (listing.size() != checked->entries + 1) abort();
  return 0;
}
