// Owned file descriptors.
//
// An Fd closes its descriptor once. A parameter of type Fd takes ownership; an int named *_fd
// borrows one for the call. Every descriptor is close-on-exec from birth.
#pragma once

#include <utility>

namespace caisson {

class [[nodiscard]] Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  // Gives the descriptor up to the caller, who must close it.
  int take() { return std::exchange(fd_, -1); }
  // Closes it now, if there is one.
  void reset();

 private:
  int fd_ = -1;
};

}  // namespace caisson
