#include "base/loop_device.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <cerrno>

#include "base/kernel_abi.h"

namespace caisson {
namespace {

constexpr const char* kLoopControl = "/dev/loop-control";
// Two that ask at the same time are told the same free device, and one of them asks again.
constexpr int kAttempts = 256;

}  // namespace

Result<LoopDevice> attach_loop(int file_fd, const LoopOptions& options) {
  const Fd control(::open(kLoopControl, O_RDWR | O_CLOEXEC));
  if (!control.valid()) return fail_errno(std::string("open ") + kLoopControl);
  loop_config config{};
  config.fd = static_cast<__u32>(file_fd);
  config.block_size = options.block_size;
  config.info.lo_flags = LO_FLAGS_AUTOCLEAR;
  if (options.read_only) config.info.lo_flags |= LO_FLAGS_READ_ONLY;
  if (options.direct) config.info.lo_flags |= LO_FLAGS_DIRECT_IO;
  const int access = options.read_only ? O_RDONLY : O_RDWR;
  int met = EBUSY;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const int number = ::ioctl(control.get(), LOOP_CTL_GET_FREE);
    if (number < 0) return fail_errno("get a free loop device");
    LoopDevice loop;
    loop.path = "/dev/loop" + std::to_string(number);
    loop.device = Fd(::open(loop.path.c_str(), access | O_CLOEXEC));
    if (loop.device.valid() && ::ioctl(loop.device.get(), LOOP_CONFIGURE, &config) == 0)
      return loop;
    met = errno;
    // Somebody else was quicker, or has just removed that device.
    if (met != EBUSY && met != ENXIO && met != ENODEV)
      return fail(Error::syscall("attach " + loop.path, met));
  }
  return fail(Error::syscall("attach a loop device", met));
}

}  // namespace caisson
