#include "maker/snapshot.h"

#include <caisson/sandbox.h>

#include <algorithm>
#include <chrono>

#include "base/time_text.h"
#include "image/config.h"
#include "image/kept_layer.h"
#include "image/pack.h"
#include "image/store.h"

namespace caisson::maker {
namespace {

constexpr std::string_view kId = "sha256:";
constexpr std::chrono::minutes kYoung{10};

// Half of the id is enough to tell them apart, and fits into a name.
image::Reference name_of(std::string_view image_id) {
  return {.name = std::string(kSnapshotNames) + std::string(image_id.substr(0, 32))};
}

std::string_view id_in(std::string_view image) {
  return image.starts_with(kId) ? image.substr(kId.size()) : std::string_view();
}

}  // namespace

Result<std::string> take_snapshot(const std::string& id, const std::string& image) {
  TRY_ASSIGN(image::Store store, image::Store::open());
  TRY_ASSIGN(const std::string below, store.find(image));
  TRY_ASSIGN(const image::ImageInfo info, store.info(below));
  TRY_ASSIGN(const std::string json, store.read_blob(below));
  TRY_ASSIGN(image::ImageConfig config, image::parse_image_config(json));
  TRY_ASSIGN(Sandbox sandbox, Sandbox::connect(id));
  image::PackedLayer packed;
  {
    TRY_ASSIGN(const image::KeptLayer layer, sandbox.hold_layer());
    TRY_ASSIGN(packed, image::pack_layer(store, layer));
    TRY(sandbox.release_layer());
  }
  if (packed.entries == 0) return std::string(kId) + below;
  store.vouch(packed.layer);
  config.created = time_text(std::chrono::system_clock::now());
  config.diff_ids.push_back(packed.layer.diff_id);
  config.history.push_back(
      {.created = config.created, .created_by = "snapshot", .comment = "", .empty_layer = false});
  image::ImageContent content{
      .config = image::encode(config), .layers = info.record.layers, .manifest = ""};
  content.layers.push_back(packed.layer);
  // The archive is one of ours: a file that is nearly all hole is no bomb but what it looks like.
  image::UnpackLimits limits;
  limits.ratio = 1'000'000;
  TRY_ASSIGN(const image::ImageInfo added, store.add_image_over(below, content, limits));
  TRY(store.set_reference(name_of(added.record.id), added.record.id));
  return std::string(kId) + added.record.id;
}

Status drop_snapshot(const std::string& image) {
  if (id_in(image).empty()) return {};
  TRY_ASSIGN(image::Store store, image::Store::open());
  const Status removed = store.remove(name_of(id_in(image)).text());
  if (!removed.has_value() && removed.error().code() != Code::kNotFound) return removed;
  return {};
}

Result<std::vector<std::string>> old_snapshots() {
  TRY_ASSIGN(image::Store store, image::Store::open());
  TRY_ASSIGN(const auto images, store.list());
  const auto now = std::chrono::system_clock::now();
  std::vector<std::string> old;
  for (const image::ListedImage& one : images) {
    const auto set_at =
        std::chrono::system_clock::time_point(std::chrono::seconds(one.named.set_at));
    if (one.reference.name.starts_with(kSnapshotNames) && now - set_at >= kYoung)
      old.push_back(std::string(kId) + one.named.image_id);
  }
  return old;
}

}  // namespace caisson::maker
