// Whether a file can still change, as the kernel knows it.
#include <fcntl.h>

#include <cerrno>
#include <thread>

#include "image/erofs_check.h"

namespace caisson::image {

Status expect_no_writer(int image_fd, std::chrono::milliseconds patience) {
  constexpr auto kPause = std::chrono::milliseconds(10);
  for (const auto deadline = std::chrono::steady_clock::now() + patience;;) {
    // The kernel gives a lease for reading only while nobody could write.
    if (fcntl(image_fd, F_SETLEASE, F_RDLCK) == 0) {
      if (fcntl(image_fd, F_SETLEASE, F_UNLCK) != 0) return fail_errno("give the lease back");
      return {};
    }
    if (errno == EINVAL || errno == EOPNOTSUPP || errno == ENOLCK) {
      errno = 0;
      return {};
    }
    if (errno != EAGAIN) return fail_errno("ask who writes the image file");
    errno = 0;
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(kPause);
  }
  return fail(Error::internal("the image file is still open for writing after its worker's end"));
}

}  // namespace caisson::image
