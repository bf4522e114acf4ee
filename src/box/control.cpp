#include <caisson/sandbox.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/error.h"
#include "box/exec.h"

namespace caisson {

Result<Control> Control::create() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return fail_errno("pipe2");
  return Control(ends[0], ends[1]);
}

Control::Control(Control&& other) noexcept
    : read_fd_(std::exchange(other.read_fd_, -1)), write_fd_(std::exchange(other.write_fd_, -1)) {}

Control& Control::operator=(Control&& other) noexcept {
  std::swap(read_fd_, other.read_fd_);
  std::swap(write_fd_, other.write_fd_);
  return *this;
}

Control::~Control() {
  if (read_fd_ >= 0) ::close(read_fd_);
  if (write_fd_ >= 0) ::close(write_fd_);
}

void Control::cancel() const {
  ask(box::Request::kCancel, 0, 0);
}

void Control::signal(int number) const {
  if (number >= 1 && number <= 64)
    ask(box::Request::kSignal, static_cast<std::uint16_t>(number), 0);
}

void Control::resize(std::uint16_t columns, std::uint16_t rows) const {
  ask(box::Request::kResize, columns, rows);
}

// A signal handler may be here: one write of a few bytes, which a pipe takes whole or not at all.
void Control::ask(std::uint8_t what, std::uint16_t first, std::uint16_t second) const {
  const int kept = errno;
  const box::Request request{.kind = what, .reserved = 0, .first = first, .second = second};
  // A full pipe holds hundreds of requests that nobody took: one more would change nothing.
  static_cast<void>(!::write(write_fd_, &request, sizeof request));
  errno = kept;
}

}  // namespace caisson
