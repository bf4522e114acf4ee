#include "base/fd.h"

#include <unistd.h>

namespace caisson {

void Fd::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

}  // namespace caisson
