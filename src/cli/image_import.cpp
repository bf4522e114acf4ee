// caisson image import: archives become images of the local store.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "base/fd.h"
#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/table.h"
#include "image/import.h"
#include "image/store.h"

namespace caisson::cli {
namespace {

constexpr std::array<Example, 2> kImportExamples = {{
    {"caisson image import base rootfs.tar.zst",
     "make the root file system of an archive the "
     "image 'base'"},
    {"docker export CONTAINER | caisson image import tools -", "from a pipe"},
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
    .synopsis = "NAME ARCHIVE",
    .summary = "Make a root file system's archive an image of the local store",
    .text =
        "ARCHIVE is a tar file, plain or compressed with gzip, zstd or xz; '-' reads it from a "
        "pipe. It is unpacked by a worker of its own without rights over this host; devices "
        "are left out. NAME is NAME or NAME:TAG.",
    .groups = {},
    .examples = kImportExamples,
    .complete = Complete::kFile};

int run_image_import(const Parsed& parsed) {
  if (parsed.arguments.size() != 2) {
    say("a name and an archive are needed; caisson image import NAME ARCHIVE");
    return kExitOwnError;
  }
  const std::string& path = parsed.arguments[1];
  Fd archive(path == "-" ? ::fcntl(0, F_DUPFD_CLOEXEC, 3)
                         : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!archive.valid()) return say_error(Error::syscall("'" + path + "'", errno));
  auto store = image::Store::open();
  if (!store.has_value()) return say_error(store.error());
  Result<image::ImportReport> report = [&] {
    ProgressLine line;
    return image::import_archive(
        *store, parsed.arguments[0], archive.get(), {},
        [&](std::uint64_t done, std::uint64_t total) { line.show(done, total); });
  }();
  if (!report.has_value()) return say_error(report.error());
  std::string text = report->text();
  if (!text.ends_with('\n')) text += '\n';
  write_all(1, text);
  return 0;
}

}  // namespace caisson::cli
