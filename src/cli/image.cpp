// caisson image import, ls, rm: the local store of images.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <string>

#include "base/fd.h"
#include "base/json.h"
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
constexpr std::array<Option, 2> kLsOptions = {{
    {.name = "--json", .help = "Print one line of JSON: a list."},
    {.name = "--quiet", .letter = 'q', .help = "Print names alone."},
}};
constexpr std::array<OptionGroup, 1> kLsGroups = {{{"Options", kLsOptions}}};
constexpr std::array<Example, 1> kLsExamples = {{{"caisson image ls", "what is there"}}};
constexpr std::array<Example, 1> kRmExamples = {
    {{"caisson image rm tools", "forget it; its files go when nothing uses them"}}};

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
constinit const CommandTable kImageLsTable = {.name = "image ls",
                                              .synopsis = "[OPTIONS]",
                                              .summary = "List the images of the local store",
                                              .text = "",
                                              .groups = kLsGroups,
                                              .examples = kLsExamples};
constinit const CommandTable kImageRmTable = {
    .name = "image rm",
    .synopsis = "NAME...",
    .summary = "Remove images from the local store",
    .text = "A sandbox that uses one keeps its files until it ends.",
    .groups = {},
    .examples = kRmExamples,
    .complete = Complete::kImage};

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

int run_image_ls(const Parsed& parsed) {
  if (!parsed.arguments.empty()) {
    say("caisson image ls takes no arguments, '" + parsed.arguments[0] + "' was given");
    return kExitOwnError;
  }
  auto store = image::Store::open();
  if (!store.has_value()) return say_error(store.error());
  const auto list = store->list();
  if (!list.has_value()) return say_error(list.error());
  if (parsed.has("--json")) {
    json::Value all = json::Value::array();
    for (const image::ListedImage& image : *list) {
      json::Value entry = json::Value::object();
      entry.set("name", image.reference.text());
      entry.set("digest", "sha256:" + image.info.digest);
      entry.set("bytes", image.info.bytes);
      entry.set("entries", image.info.entries);
      entry.set("imported", image.imported);
      all.push(std::move(entry));
    }
    write_all(1, json::serialize(all) + "\n");
    return 0;
  }
  if (parsed.has("--quiet")) {
    for (const image::ListedImage& image : *list) write_all(1, image.reference.text() + "\n");
    return 0;
  }
  const std::int64_t now = std::chrono::duration_cast<std::chrono::milliseconds>(
                               std::chrono::system_clock::now().time_since_epoch())
                               .count();
  TextTable table({"NAME", "DIGEST", "SIZE", "FILES", "AGE"});
  for (const image::ListedImage& image : *list)
    table.add({image.reference.text(), image.info.digest.substr(0, 12), size_text(image.info.bytes),
               std::to_string(image.info.entries), duration_text(now - image.imported * 1000)});
  write_all(1, table.text());
  return 0;
}

int run_image_rm(const Parsed& parsed) {
  if (parsed.arguments.empty()) {
    say("no image given; caisson image rm NAME...");
    return kExitOwnError;
  }
  auto store = image::Store::open();
  if (!store.has_value()) return say_error(store.error());
  int status = 0;
  for (const std::string& name : parsed.arguments)
    if (const auto removed = store->remove(name); !removed.has_value())
      status = say_error(removed.error());
  return status;
}

}  // namespace caisson::cli
