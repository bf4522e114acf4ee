#include "image/kept_layer.h"

#include <sys/ioctl.h>
#include <sys/statfs.h>

#include <cstdint>
#include <utility>

#include "base/kernel_abi.h"

namespace caisson::image {
namespace {

// Unmounting would first write to disk what is about to vanish.
void abandon(const KeptLayer& layer) {
  if (!layer.vanishes || !layer.directory.valid()) return;
  struct statfs facts{};
  if (::fstatfs(layer.directory.get(), &facts) != 0 || facts.f_type != EXT4_SUPER_MAGIC) return;
  std::uint32_t how = EXT4_GOING_FLAGS_NOLOGFLUSH;
  (void)::ioctl(layer.directory.get(), EXT4_IOC_SHUTDOWN, &how);
}

}  // namespace

KeptLayer& KeptLayer::operator=(KeptLayer&& other) noexcept {
  if (this == &other) return *this;
  abandon(*this);
  directory = std::move(other.directory);
  record = std::move(other.record);
  uid_lines = std::move(other.uid_lines);
  gid_lines = std::move(other.gid_lines);
  trusted_attributes = other.trusted_attributes;
  vanishes = other.vanishes;
  return *this;
}

KeptLayer::~KeptLayer() {
  abandon(*this);
}

}  // namespace caisson::image
