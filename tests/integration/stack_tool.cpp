// Makes an image of another one and a layer, for the tests:
//
//   stack_tool over|flat BASE NAME LAYER [DIFF_ID]
//
// LAYER is a file, a tar of the digest DIFF_ID (without it: an uncompressed one). `over` makes a
// delta where that can be, `flat` flattens. One line of JSON says what came of it.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "base/json.h"
#include "base/kernel_abi.h"
#include "image/config.h"
#include "image/manifest.h"
#include "image/pack.h"
#include "image/store.h"

namespace caisson {
namespace {

Result<image::LayerRef> keep_layer(image::Store& store, const std::string& path,
                                   const std::string& diff_id) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return fail_errno("open " + path);
  TRY_ASSIGN(image::PartialBlob blob, store.begin_blob(std::nullopt));
  char buffer[65536];
  std::uint64_t size = 0;
  for (ssize_t got = 0; (got = ::read(file.get(), buffer, sizeof buffer)) > 0;) {
    if (::write(blob.file.get(), buffer, static_cast<std::size_t>(got)) != got)
      return fail_errno("write the layer");
    size += static_cast<std::uint64_t>(got);
  }
  TRY_ASSIGN(const std::string digest, store.commit_blob(std::move(blob)));
  const bool plain = diff_id.empty();
  return image::LayerRef{.blob = {.media_type = plain ? std::string(image::media::kOciLayer)
                                                      : std::string(image::kLayerMediaType),
                                  .digest = digest,
                                  .size = size},
                         .diff_id = plain ? digest : diff_id};
}

Status run(int count, char** words) {
  const std::string how = count > 1 ? words[1] : "";
  if ((count != 5 && count != 6) || (how != "over" && how != "flat"))
    return fail(Error::invalid("stack_tool over|flat BASE NAME LAYER [DIFF_ID]"));
  TRY_ASSIGN(image::Store store, image::Store::open());
  TRY_ASSIGN(const std::string base_id, store.find(words[2]));
  TRY_ASSIGN(const image::ImageInfo base, store.info(base_id));
  TRY_ASSIGN(const image::LayerRef layer, keep_layer(store, words[4], count == 6 ? words[5] : ""));
  TRY_ASSIGN(const std::string text, store.read_blob(base_id));
  TRY_ASSIGN(image::ImageConfig config, image::parse_image_config(text));
  config.diff_ids.push_back(layer.diff_id);
  image::ImageContent content{.config = image::encode(config), .layers = base.record.layers};
  content.layers.push_back(layer);
  const auto begin = std::chrono::steady_clock::now();
  image::ImageInfo info;
  if (how == "over") {
    TRY_ASSIGN(info, store.add_image_over(base_id, content));
  } else {
    TRY_ASSIGN(info, store.add_image(content));
  }
  const auto took = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - begin);
  TRY_ASSIGN(const image::Reference name, image::parse_reference(words[3]));
  TRY(store.set_reference(name, info.record.id));
  TRY(store.sweep());
  json::Value told = json::Value::object();
  told.set("id", info.record.id);
  told.set("below", info.below.size());
  told.set("form", image::to_string(info.rootfs->form));
  told.set("disk_bytes", info.rootfs->disk_bytes);
  told.set("bytes", info.rootfs->bytes);
  told.set("milliseconds", took.count());
  std::printf("%s\n", json::serialize(told, json::Layout::kCompact).c_str());
  return {};
}

}  // namespace
}  // namespace caisson

int main(int count, char** words) {
  auto done = caisson::run(count, words);
  if (done.has_value()) return 0;
  std::fprintf(stderr, "%s\n", done.error().message().c_str());
  return 1;
}
