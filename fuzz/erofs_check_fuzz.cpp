// libraries: image base
// parser: src/image/erofs_check.cpp src/image/erofs_format.cpp
//
// What root's kernel is to mount: the input as an image file, with the checksum made right. What
// the check takes, as a whole root file system or as a delta, a strict reader of the tests must
// take as well (it ends the program otherwise), and what is whole could be a delta too.
//
// Most of an image is zeros. So that a change of the input is mostly one of what is not, it has
// them packed: a zero byte is followed by two more, which say how many zeros it stands for.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "image/erofs_check.h"
#include "image/rootfs_for_test.h"

namespace {

constexpr std::size_t kMostBytes = 64 * caisson::image::erofs::kBlock;

std::string unpack(std::string_view packed) {
  std::string image;
  for (std::size_t at = 0; at < packed.size() && image.size() < kMostBytes; ++at) {
    if (packed[at] != 0 || packed.size() - at < 3) {
      image += packed[at];
      continue;
    }
    image.append(caisson::image::erofs::get16(packed.data() + at + 1), '\0');
    at += 2;
  }
  return image;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caisson::image;
  std::string image = unpack({reinterpret_cast<const char*>(data), size});
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
