// caisson image import: archives become images of the local store.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>

#include "base/fd.h"
#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/table.h"
#include "image/import.h"
#include "image/store.h"
#include "image/transfer/saved_image.h"

namespace caisson::cli {
namespace {

constexpr std::array<Example, 3> kImportExamples = {{
    {"caisson image import base rootfs.tar.zst",
     "make the root file system of an archive the "
     "image 'base'"},
    {"docker export CONTAINER | caisson image import tools -", "from a pipe"},
    {"docker save tools:1 | caisson image import -", "an image with its layers and settings"},
}};

// A line that is written over itself while a long import goes on.
class ProgressLine {
 public:
  ProgressLine() : terminal_(::isatty(2) == 1) {}
  ~ProgressLine() {
    if (shown_) write_all(2, "\r\x1b[K");
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void show(std::uint64_t done, std::uint64_t total) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal_ || now - last_ < std::chrono::milliseconds(100)) return;
    last_ = now;
    std::string line = "\r\x1b[Kimporting: " + size_text(done);
    if (total > 0) line += " of " + size_text(total);
    write_all(2, line);
    shown_ = true;
  }

 private:
  bool terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace

constinit const CommandTable kImageImportTable = {
    .name = "image import",
    .synopsis = "[NAME] ARCHIVE",
    .summary = "Make an archive an image of the local store",
    .text =
        "ARCHIVE is the tar of a root file system, plain or compressed with gzip, zstd or xz; or "
        "saved images: an OCI layout (a directory or a plain tar), or what `docker save` writes. "
        "'-' reads it from a pipe. Layers are unpacked by a worker of its own without rights over "
        "this host; devices are left out.\n\n"
        "NAME is NAME or NAME:TAG. Saved images have names of their own, which count where NAME is "
        "left away.",
    .groups = {},
    .examples = kImportExamples,
    .complete = Complete::kFile};

namespace {

int import_saved_images(image::Store& store, image::SavedForm form, int archive_fd,
                        const std::optional<std::string>& name) {
  std::optional<image::Reference> reference;
  if (name) {
    auto parsed = image::parse_reference(*name);
    if (!parsed.has_value()) return say_error(parsed.error());
    reference = std::move(*parsed);
  }
  const auto imports = [&] {
    ProgressLine line;
    return image::import_saved(
        store, form, archive_fd, reference, {},
        [&](std::uint64_t done, std::uint64_t total) { line.show(done, total); });
  }();
  if (!imports.has_value()) return say_error(imports.error());
  for (const image::SavedImport& import : *imports) {
    for (const image::Reference& called : import.references) {
      write_all(1, called.text() + ": " + std::to_string(import.layers) +
                       (import.layers == 1 ? " layer, " : " layers, ") + size_text(import.bytes) +
                       ", sha256:" + import.image_id.substr(0, 12) + "\n");
    }
  }
  return 0;
}

}  // namespace

int run_image_import(const Parsed& parsed) {
  if (parsed.arguments.empty() || parsed.arguments.size() > 2) {
    say("a name and an archive are needed; caisson image import NAME ARCHIVE");
    return kExitOwnError;
  }
  const std::string& path = parsed.arguments.back();
  std::optional<std::string> name;
  if (parsed.arguments.size() == 2) name = parsed.arguments.front();
  // Before a long archive is read.
  if (name) {
    const auto reference = image::parse_reference(*name);
    if (!reference.has_value()) return say_error(reference.error());
  }
  Fd archive(path == "-" ? ::fcntl(0, F_DUPFD_CLOEXEC, 3)
                         : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!archive.valid()) return say_error(Error::syscall("'" + path + "'", errno));
  auto store = image::Store::open();
  if (!store.has_value()) return say_error(store.error());
  auto seekable = image::as_file(*store, std::move(archive), image::UnpackLimits().archive);
  if (!seekable.has_value()) return say_error(seekable.error());
  if (const auto form = image::detect_saved_form(seekable->get())) {
    return import_saved_images(*store, *form, seekable->get(), name);
  }
  if (!name) {
    say("'" + path +
        "' holds no saved image with a name of its own; caisson image import NAME ARCHIVE");
    return kExitOwnError;
  }
  Result<image::ImportReport> report = [&] {
    ProgressLine line;
    return image::import_archive(
        *store, *name, seekable->get(), {},
        [&](std::uint64_t done, std::uint64_t total) { line.show(done, total); });
  }();
  if (!report.has_value()) return say_error(report.error());
  std::string text = report->text();
  if (!text.ends_with('\n')) text += '\n';
  write_all(1, text);
  return 0;
}

}  // namespace caisson::cli
