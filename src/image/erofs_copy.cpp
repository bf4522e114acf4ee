#include "image/erofs_copy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/kernel_abi.h"
#include "image/erofs_check.h"
#include "image/erofs_format.h"
#include "image/mount.h"

namespace caisson::image {
namespace {

Result<Fd> make_nameless(int directory_fd) {
  Fd file(openat(directory_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (file.valid()) return file;
  constexpr const char* kName = "rootfs.erofs.copy";
  file = Fd(openat(directory_fd, kName, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!file.valid()) return fail_errno("make a file for a copy of the image");
  if (unlinkat(directory_fd, kName, 0) != 0) return fail_errno("unlink the image's copy");
  return file;
}

std::unexpected<Error> became_shorter() {
  return fail(Error(Code::kDataLoss, "the image file became shorter"));
}

// The same bytes to the same place.
Status copy_range(int from_fd, int to_fd, off_t begin, off_t end) {
  off_t from = begin, to = begin;
  while (from < end) {
    const ssize_t done =
        copy_file_range(from_fd, &from, to_fd, &to, static_cast<std::size_t>(end - from), 0);
    if (done <= 0) break;  // not on this file system
  }
  std::vector<char> buffer(from < end ? 1 << 20 : 0);
  while (from < end) {
    const auto piece = std::min<std::size_t>(buffer.size(), static_cast<std::size_t>(end - from));
    const ssize_t got = TEMP_FAILURE_RETRY(pread(from_fd, buffer.data(), piece, from));
    if (got < 0) return fail_errno("read the image file");
    if (got == 0) return became_shorter();
    for (ssize_t done = 0; done < got;) {
      const ssize_t put = TEMP_FAILURE_RETRY(
          pwrite(to_fd, buffer.data() + done, static_cast<std::size_t>(got - done), from + done));
      if (put < 0) return fail_errno("write a copy of the image");
      done += put;
    }
    from += got;
  }
  return {};
}

// Without the holes.
Status copy_data(int from_fd, int to_fd, off_t begin, off_t end) {
  while (begin < end) {
    const off_t data = lseek(from_fd, begin, SEEK_DATA);
    if (data < 0 && errno == ENXIO) return {};
    if (data < 0) return fail_errno("look for data in the image file");
    const off_t hole = lseek(from_fd, data, SEEK_HOLE);
    if (hole < 0) return became_shorter();
    TRY(copy_range(from_fd, to_fd, std::min(data, end), std::min(hole, end)));
    begin = hole;
  }
  return {};
}

}  // namespace

Result<Fd> ErofsCopy::update(int directory_fd) {
  const Fd image(openat(directory_fd, kErofsName, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!image.valid()) return fail_errno(std::string("open ") + kErofsName);
  struct stat status = {};
  if (fstat(image.get(), &status) != 0) return fail_errno("stat the image file");
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size < std::max<std::uint64_t>(size_, erofs::kBlock)) return became_shorter();
  if (!file_.valid()) {
    TRY_ASSIGN(file_, make_nameless(directory_fd));
  }
  if (ftruncate(file_.get(), status.st_size) != 0) return fail_errno("set the copy's size");
  TRY(copy_data(image.get(), file_.get(), static_cast<off_t>(size_), status.st_size));
  TRY(copy_range(image.get(), file_.get(), 0, erofs::kBlock));
  size_ = size;
  TRY(check_erofs(file_.get(), RootfsKind::kWhole));
  const std::string path = "/proc/self/fd/" + std::to_string(file_.get());
  Fd reading(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!reading.valid()) return fail_errno("open the image's copy");
  errno = 0;
  return reading;
}

}  // namespace caisson::image
