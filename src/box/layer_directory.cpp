#include "box/layer_directory.h"

#include <unistd.h>

#include "base/paths.h"
#include "image/files.h"

namespace caisson::box {

Result<Fd> open_layer_directory() {
  if (::geteuid() != 0)
    return fail(Error::precondition(
        "layer: quota needs a loop device, which is root's alone; allowed is layer: tmpfs"));
  const std::string path = state_directory() + "/layers";
  auto directory = image::open_or_make_directory(path);
  if (!directory.has_value())
    return fail(std::move(directory).error().with("layer: quota: " + path));
  return directory;
}

}  // namespace caisson::box
