// caisson image ls, tag, rm, gc: names of the local store of images, and what they keep.
#include <chrono>
#include <ctime>
#include <string>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/messages.h"
#include "cli/table.h"
#include "image/store.h"

namespace caisson::cli {
namespace {

constexpr std::array<Option, 2> kLsOptions = {{
    {.name = "--json", .help = "Print one line of JSON: a list."},
    {.name = "--quiet", .letter = 'q', .help = "Print names alone."},
}};
constexpr std::array<OptionGroup, 1> kLsGroups = {{{"Options", kLsOptions}}};
constexpr std::array<Example, 1> kLsExamples = {{{"caisson image ls", "what is there"}}};
constexpr std::array<Example, 1> kTagExamples = {
    {{"caisson image tag tools tools:stable", "a second name, which stays when 'tools' moves on"}}};
constexpr std::array<Example, 2> kRmExamples = {
    {{"caisson image rm tools", "forget it; its files go when nothing uses them"},
     {"caisson image rm 3f5a9c1e2b7d", "all names of the image with this id"}}};
constexpr std::array<Option, 3> kGcOptions = {{
    {.name = "--all",
     .help =
         "Also what is newer than a week: the whole build cache, and downloads that were broken "
         "off, which then begin from the start."},
    {.name = "--dry-run", .help = "Say what would be removed, and remove nothing."},
    {.name = "--json", .help = "Print one line of JSON."},
}};
constexpr std::array<OptionGroup, 1> kGcGroups = {{{"Options", kGcOptions}}};
constexpr std::array<Example, 2> kGcExamples = {
    {{"caisson image gc --dry-run", "what a collection would free"},
     {"caisson image gc --all", "keep what names and sandboxes need, nothing else"}}};

std::int64_t seconds_now() {
  return static_cast<std::int64_t>(std::time(nullptr));
}

json::Value json_of(const image::ListedImage& listed) {
  json::Value entry = json::Value::object();
  entry.set("name", listed.reference.text());
  entry.set("usable", listed.image.has_value() && listed.image->rootfs.has_value());
  if (!listed.named.image_id.empty()) {
    entry.set("id", "sha256:" + listed.named.image_id);
    entry.set("set", listed.named.set_at);
  }
  if (!listed.image) return entry;
  const image::ImageRecord& record = listed.image->record;
  if (!record.manifest.empty()) entry.set("digest", "sha256:" + record.manifest);
  entry.set("layers", record.layers.size());
  entry.set("layer_bytes", record.layer_bytes());
  if (listed.image->rootfs) {
    entry.set("bytes", listed.image->rootfs_bytes());
    entry.set("entries", listed.image->rootfs_entries());
  }
  return entry;
}

std::vector<std::string> row_of(const image::ListedImage& listed) {
  const std::string name = listed.reference.text();
  if (listed.named.image_id.empty()) return {name, "(import it again)", "", "", ""};
  const std::string id = listed.named.image_id.substr(0, 12);
  const std::string age = duration_text((seconds_now() - listed.named.set_at) * 1000);
  if (!listed.image || !listed.image->rootfs) return {name, id, "(files are missing)", "", age};
  return {name, id, size_text(listed.image->rootfs_bytes()),
          std::to_string(listed.image->rootfs_entries()), age};
}

std::string counted(std::uint64_t count, std::string_view one, std::string_view many) {
  return std::to_string(count) + " " + std::string(count == 1 ? one : many);
}

std::string gc_text(const image::SweepReport& report, image::GcMode mode) {
  const bool dry = mode == image::GcMode::kDryRun;
  std::string text = dry ? "would free " : "freed ";
  text += size_text(report.bytes);
  std::string parts;
  auto part = [&](std::uint64_t count, std::string_view one, std::string_view many) {
    if (count > 0) parts += (parts.empty() ? ": " : ", ") + counted(count, one, many);
  };
  part(report.images, "image", "images");
  part(report.rootfs, "root file system", "root file systems");
  part(report.blobs, "blob", "blobs");
  part(report.cache_entries, "entry of the build cache", "entries of the build cache");
  part(report.partial, "download that was broken off", "downloads that were broken off");
  text += parts + "\n";
  if (report.in_use > 0) {
    text += counted(report.in_use, "root file system is", "root file systems are") +
            " still in use and " + (report.in_use == 1 ? "goes" : "go") +
            " when the last sandbox on it ends\n";
  }
  return text;
}

std::string gc_json(const image::SweepReport& report, image::GcMode mode) {
  json::Value all = json::Value::object();
  all.set("dry_run", mode == image::GcMode::kDryRun);
  all.set("bytes", report.bytes);
  all.set("images", report.images);
  all.set("rootfs", report.rootfs);
  all.set("blobs", report.blobs);
  all.set("cache_entries", report.cache_entries);
  all.set("partial", report.partial);
  all.set("in_use", report.in_use);
  return json::serialize(all) + "\n";
}

}  // namespace

constinit const CommandTable kImageLsTable = {
    .name = "image ls",
    .synopsis = "[OPTIONS]",
    .summary = "List the images of the local store",
    .text =
        "SIZE and FILES are those of the unpacked root file system. Several names may mean one "
        "image: their ID is the same, and it is stored once.",
    .groups = kLsGroups,
    .examples = kLsExamples};
constinit const CommandTable kImageTagTable = {
    .name = "image tag",
    .synopsis = "IMAGE NAME",
    .summary = "Give an image of the local store another name",
    .text =
        "IMAGE is a name, an id, or the first six or more digits of one. Where NAME means "
        "another image already, it means this one from now on.",
    .groups = {},
    .examples = kTagExamples,
    .complete = Complete::kImage};
constinit const CommandTable kImageRmTable = {
    .name = "image rm",
    .synopsis = "IMAGE...",
    .summary = "Remove images from the local store",
    .text =
        "IMAGE is a name, which is removed, or an id (or its first six or more digits), all "
        "names of which are. Files that no other name keeps go at once; a sandbox that uses "
        "them keeps them until it ends.",
    .groups = {},
    .examples = kRmExamples,
    .complete = Complete::kImage};
constinit const CommandTable kImageGcTable = {
    .name = "image gc",
    .synopsis = "[OPTIONS]",
    .summary = "Free the space of what no image needs any more",
    .text =
        "Removes what no name and no entry of the build cache reaches, entries of the build "
        "cache that were not used for a week, and downloads that were broken off a week ago. "
        "Files that a sandbox uses stay until it ends.",
    .groups = kGcGroups,
    .examples = kGcExamples};

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
    for (const image::ListedImage& listed : *list) all.push(json_of(listed));
    write_all(1, json::serialize(all) + "\n");
    return 0;
  }
  if (parsed.has("--quiet")) {
    for (const image::ListedImage& listed : *list) write_all(1, listed.reference.text() + "\n");
    return 0;
  }
  TextTable table({"NAME", "ID", "SIZE", "FILES", "AGE"});
  for (const image::ListedImage& listed : *list) table.add(row_of(listed));
  write_all(1, table.text());
  return 0;
}

int run_image_tag(const Parsed& parsed) {
  if (parsed.arguments.size() != 2) {
    say("an image and a name are needed; caisson image tag IMAGE NAME");
    return kExitOwnError;
  }
  const auto tagged = [&]() -> Status {
    TRY_ASSIGN(const image::Reference name, image::parse_reference(parsed.arguments[1]));
    if (!name.digest.empty()) {
      return fail(Error::invalid("image name '" + name.text() +
                                 "': a digest comes from a registry; leave '@sha256:…' out"));
    }
    TRY_ASSIGN(image::Store store, image::Store::open());
    TRY_ASSIGN(const std::string id, store.find(parsed.arguments[0]));
    TRY(store.set_reference(name, id));
    return store.sweep();
  }();
  return tagged.has_value() ? 0 : say_error(tagged.error());
}

int run_image_rm(const Parsed& parsed) {
  if (parsed.arguments.empty()) {
    say("no image given; caisson image rm IMAGE...");
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

int run_image_gc(const Parsed& parsed) {
  if (!parsed.arguments.empty()) {
    say("caisson image gc takes no arguments, '" + parsed.arguments[0] + "' was given");
    return kExitOwnError;
  }
  auto store = image::Store::open();
  if (!store.has_value()) return say_error(store.error());
  const auto scope = parsed.has("--all") ? image::GcScope::kAll : image::GcScope::kStale;
  const auto mode = parsed.has("--dry-run") ? image::GcMode::kDryRun : image::GcMode::kRemove;
  const auto report = store->gc(scope, mode);
  if (!report.has_value()) return say_error(report.error());
  write_all(1, parsed.has("--json") ? gc_json(*report, mode) : gc_text(*report, mode));
  return 0;
}

}  // namespace caisson::cli
