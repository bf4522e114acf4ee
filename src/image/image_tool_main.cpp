// A shell's way to the image store, for tests: import NAME FILE|- [ENTRIES BYTES RATIO], list,
// resolve NAME, remove NAME, sweep, and steps (the names of image/store_steps.h). The store is
// state_directory()'s, so CAISSON_STATE_DIR chooses.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "image/import.h"
#include "image/store_steps.h"

namespace caisson::image {
namespace {

Status run(int count, char** arguments) {
  const std::string command = count > 1 ? arguments[1] : "";
  if (command == "steps") {
    for (const std::string_view step : kStoreSteps) std::printf("%s\n", std::string(step).c_str());
    return {};
  }
  TRY_ASSIGN(Store store, Store::open());
  if (command == "import" && count >= 4) {
    const std::string file = arguments[3];
    Fd archive(file == "-" ? dup(0) : open(file.c_str(), O_RDONLY | O_CLOEXEC));
    if (!archive.valid()) return fail_errno("open " + file);
    UnpackLimits limits;
    if (count > 4) limits.entries = std::strtoull(arguments[4], nullptr, 10);
    if (count > 5) limits.bytes = std::strtoull(arguments[5], nullptr, 10);
    if (count > 6) limits.ratio = std::strtoull(arguments[6], nullptr, 10);
    TRY_ASSIGN(ImportReport report, import_archive(store, arguments[2], archive.get(), limits));
    std::fputs(report.text().c_str(), stdout);
    return {};
  }
  if (command == "list") {
    TRY_ASSIGN(auto images, store.list());
    for (const ListedImage& image : images) {
      std::printf("%s %s\n", image.reference.text().c_str(), image.named.image_id.c_str());
    }
    return {};
  }
  if (command == "resolve" && count == 3) {
    TRY_ASSIGN(ImageRef image, store.resolve(arguments[2]));
    std::printf("%s %s %u\n", image.name.c_str(), image.record.id.c_str(), image.disk_base());
    return {};
  }
  if (command == "remove" && count == 3) return store.remove(arguments[2]);
  if (command == "sweep") return store.sweep();
  return fail(
      Error::invalid("usage: import NAME FILE|-, list, resolve NAME, remove NAME, sweep, "
                     "steps"));
}

}  // namespace
}  // namespace caisson::image

int main(int count, char** arguments) {
  auto done = caisson::image::run(count, arguments);
  if (done.has_value()) return 0;
  std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return 1;
}
