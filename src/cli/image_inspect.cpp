// caisson image inspect: all that the store knows about an image, as JSON.
#include <string>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/messages.h"
#include "image/store.h"

namespace caisson::cli {
namespace {

constexpr std::array<Example, 1> kInspectExamples = {
    {{"caisson image inspect base", "its config, layers, sizes, and how it is kept"}}};

std::string prefixed(const std::string& digest) {
  return "sha256:" + digest;
}

json::Value json_of(const image::LayerRef& layer) {
  json::Value entry = json::Value::object();
  entry.set("digest", prefixed(layer.blob.digest));
  entry.set("diff_id", prefixed(layer.diff_id));
  entry.set("size", layer.blob.size);
  entry.set("media_type", layer.blob.media_type);
  return entry;
}

// How a run gets at it: a mount of its own, or none.
std::string_view mount_of(const image::Store& store, const image::RootfsInfo& rootfs) {
  if (rootfs.form == image::RootfsForm::kDirectory) return "none";
  const image::MountSupport support = image::known_mounts(store.directory_fd());
  for (const auto method : {image::ErofsMethod::kBuffered, image::ErofsMethod::kLoop}) {
    if (support[method] == 0) return to_string(method);
  }
  return "impossible";
}

json::Value json_of(image::Store& store, const image::RootfsInfo& rootfs) {
  json::Value entry = json::Value::object();
  entry.set("chain", prefixed(rootfs.chain));
  entry.set("form", to_string(rootfs.form));
  entry.set("mount", mount_of(store, rootfs));
  entry.set("bytes", rootfs.bytes);
  entry.set("entries", rootfs.entries);
  if (rootfs.disk_bytes != 0) entry.set("disk_bytes", rootfs.disk_bytes);
  entry.set("ids", to_string(rootfs.ids.layout));
  entry.set("in_use", store.in_use(rootfs.chain));
  return entry;
}

Result<json::Value> inspect(image::Store& store, const std::string& text) {
  TRY_ASSIGN(const std::string id, store.find(text));
  TRY_ASSIGN(const image::ImageInfo info, store.info(id));
  TRY_ASSIGN(const std::string config, store.read_blob(id));
  TRY_ASSIGN(json::Value config_value, json::parse(config, {.bytes = image::kMaxReadBlob}));
  json::Value names = json::Value::array();
  TRY_ASSIGN(const std::vector<image::Reference> all, store.names_of(id));
  for (const image::Reference& name : all) names.push(name.text());
  json::Value layers = json::Value::array();
  for (const image::LayerRef& layer : info.record.layers) layers.push(json_of(layer));
  json::Value value = json::Value::object();
  value.set("id", prefixed(id));
  value.set("names", std::move(names));
  if (!info.record.manifest.empty()) value.set("digest", prefixed(info.record.manifest));
  value.set("layers", std::move(layers));
  value.set("layer_bytes", info.record.layer_bytes());
  if (info.rootfs) {
    json::Value rootfs = json_of(store, *info.rootfs);
    if (!info.below.empty()) {
      json::Value below = json::Value::array();
      for (const image::RootfsInfo& lower : info.below) below.push(json_of(store, lower));
      rootfs.set("below", std::move(below));
    }
    value.set("rootfs", std::move(rootfs));
  }
  value.set("config", std::move(config_value));
  return value;
}

}  // namespace

constinit const CommandTable kImageInspectTable = {
    .name = "image inspect",
    .synopsis = "IMAGE...",
    .summary = "Print what is known about images of the local store, as JSON",
    .text =
        "IMAGE is a name, an id, or the first six or more digits of one. The output is a list "
        "with an object for each: its names, its layers as they are kept, the root file system "
        "that they make, and the image's own config.",
    .groups = {},
    .examples = kInspectExamples,
    .complete = Complete::kImage};

int run_image_inspect(const Parsed& parsed) {
  if (parsed.arguments.empty()) {
    say("no image given; caisson image inspect IMAGE...");
    return kExitOwnError;
  }
  auto store = image::Store::open();
  if (!store.has_value()) return say_error(store.error());
  json::Value all = json::Value::array();
  for (const std::string& text : parsed.arguments) {
    auto value = inspect(*store, text);
    if (!value.has_value()) return say_error(value.error());
    all.push(std::move(*value));
  }
  write_all(1, json::serialize(all, json::Layout::kPretty) + "\n");
  return 0;
}

}  // namespace caisson::cli
