#include "image/manifest.h"

#include <algorithm>
#include <array>

#include "base/json.h"
#include "image/config.h"
#include "image/json_fields.h"
#include "image/reference.h"

namespace caisson::image {
namespace {

constexpr std::string_view kSchemaOne = "application/vnd.docker.distribution.manifest.v1";

bool is_index_type(std::string_view type) {
  return type == media::kOciIndex || type == media::kDockerIndex;
}
bool is_manifest_type(std::string_view type) {
  return type == media::kOciManifest || type == media::kDockerManifest;
}
bool is_foreign_layer(std::string_view type) {
  return type.find(".foreign.") != std::string_view::npos ||
         type.find(".nondistributable.") != std::string_view::npos;
}

Error unimplemented(std::string text) {
  return Error(Code::kUnimplemented, std::move(text));
}

Result<Descriptor> descriptor_of(const Field& field) {
  if (!field.present()) return fail(wrong_field(field, "an object with mediaType, digest, size"));
  Descriptor descriptor;
  TRY_ASSIGN(descriptor.media_type, text_of(field.at("mediaType")));
  TRY_ASSIGN(descriptor.digest, required_digest(field.at("digest")));
  TRY_ASSIGN(descriptor.size, required_size(field.at("size")));
  return descriptor;
}

Result<Descriptor> layer_of(const Field& field) {
  TRY_ASSIGN(Descriptor layer, descriptor_of(field));
  if (is_foreign_layer(layer.media_type)) {
    return fail(unimplemented(field.path + ": a foreign layer (" + printable(layer.media_type) +
                              "), which no registry holds; such images are not supported"));
  }
  TRY_ASSIGN(std::vector<std::string> urls, texts_of(field.at("urls")));
  if (!urls.empty()) {
    return fail(unimplemented(field.path +
                              ": a layer that lies elsewhere (\"urls\"); nothing is fetched from "
                              "where an image points"));
  }
  if (layer.media_type.ends_with("+encrypted")) {
    return fail(unimplemented(field.path + ": an encrypted layer; they are not supported"));
  }
  if (!layer_packing(layer.media_type)) {
    return fail(wrong_field(field.at("mediaType"),
                            "a layer of OCI or Docker: tar, tar with gzip, tar with zstd"));
  }
  return layer;
}

Result<Manifest> manifest_of(const Field& top, std::string media_type) {
  Manifest manifest;
  manifest.media_type = std::move(media_type);
  TRY_ASSIGN(manifest.config, descriptor_of(top.at("config")));
  const std::string& type = manifest.config.media_type;
  if (type != media::kOciConfig && type != media::kDockerConfig) {
    return fail(unimplemented("config.mediaType: found '" + printable(type) +
                              "', so this is no container image; allowed is " +
                              std::string(media::kOciConfig) + " or " +
                              std::string(media::kDockerConfig)));
  }
  if (manifest.config.size > kMaxConfigSize) {
    return fail(wrong_field(top.at("config").at("size"),
                            std::to_string(kMaxConfigSize) + " bytes at most"));
  }
  TRY_ASSIGN(std::vector<Field> layers, items_of(top.at("layers"), kMaxLayers));
  for (const Field& item : layers) {
    TRY_ASSIGN(Descriptor layer, layer_of(item));
    manifest.layers.push_back(std::move(layer));
  }
  return manifest;
}

Result<IndexEntry> entry_of(const Field& field) {
  IndexEntry entry;
  TRY_ASSIGN(entry.manifest, descriptor_of(field));
  const Field platform = field.at("platform");
  if (platform.present()) {
    Platform given;
    TRY_ASSIGN(given.os, text_of(platform.at("os")));
    TRY_ASSIGN(given.architecture, text_of(platform.at("architecture")));
    TRY_ASSIGN(given.variant, text_of(platform.at("variant")));
    // What some tools write where they know nothing.
    if (!given.os.empty() || !given.architecture.empty()) entry.platform = std::move(given);
  }
  TRY_ASSIGN(auto annotations, text_map_of(field.at("annotations")));
  for (const char* key : {"io.containerd.image.name", "org.opencontainers.image.ref.name"}) {
    if (auto found = annotations.find(key); found != annotations.end()) {
      entry.reference_name = found->second;
      break;
    }
  }
  return entry;
}

Result<Index> index_of(const Field& top, std::string media_type) {
  Index index;
  index.media_type = std::move(media_type);
  TRY_ASSIGN(std::vector<Field> items, items_of(top.at("manifests"), kMaxIndexEntries));
  for (const Field& item : items) {
    TRY_ASSIGN(IndexEntry entry, entry_of(item));
    index.entries.push_back(std::move(entry));
  }
  return index;
}

Status check_schema(const Field& top) {
  const Field field = top.at("schemaVersion");
  const std::int64_t* version = field.present() ? field.value->as_integer() : nullptr;
  if (version != nullptr && *version == 1) {
    return fail(
        unimplemented("schemaVersion: found the number 1, a form of manifest that was given up in "
                      "2016; allowed is 2. The image must be pushed again by a newer tool"));
  }
  if (version == nullptr || *version != 2) return fail(wrong_field(field, "the number 2"));
  return {};
}

// How well an entry fits; 0: not at all.
int fit(const Platform& offered, const Platform& wanted) {
  if (offered.os != wanted.os || offered.architecture != wanted.architecture) return 0;
  if (offered.variant == wanted.variant) return 3;
  if (!wanted.variant.empty()) return 0;
  if (wanted.architecture == "arm64" && offered.variant == "v8") return 2;
  // "v2", "v3" of amd64 are processors that this machine may not be.
  return 0;
}

bool is_plain_file_name(std::string_view name) {
  if (name.empty() || name.size() > 4096 || name.front() == '/') return false;
  for (std::string_view rest = name;;) {
    const std::size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if (part.empty() || part == "." || part == "..") return false;
    if (slash == std::string_view::npos) return true;
    rest.remove_prefix(slash + 1);
  }
}

}  // namespace

std::string Platform::text() const {
  std::string text = os + "/" + architecture;
  if (!variant.empty()) text += "/" + variant;
  return text;
}

Result<Platform> parse_platform(std::string_view text) {
  std::array<std::string, 3> parts;
  std::size_t count = 0;
  for (std::string_view rest = text; count < parts.size();) {
    const std::size_t slash = rest.find('/');
    parts[count++] = rest.substr(0, slash);
    if (slash == std::string_view::npos) {
      rest = {};
      break;
    }
    rest.remove_prefix(slash + 1);
    if (count == parts.size()) count = 4;
  }
  const auto good = [](const std::string& part) {
    return !part.empty() && part.size() <= 32 && std::ranges::all_of(part, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
    });
  };
  if (count < 2 || count > 3 || !std::all_of(parts.begin(), parts.begin() + count, good)) {
    return fail(Error::invalid("platform '" + printable(text, 80) +
                               "': allowed is OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT, such as "
                               "linux/arm64"));
  }
  return Platform{.os = parts[0], .architecture = parts[1], .variant = parts[2]};
}

Platform host_platform() {
  return {.os = "linux", .architecture = std::string(host_architecture()), .variant = {}};
}

Result<std::variant<Manifest, Index>> parse_manifest(std::string_view text,
                                                     std::string_view media_type) {
  if (media_type.starts_with(kSchemaOne)) {
    return fail(
        unimplemented("the registry has this image as a manifest of schema 1 only, a form that was "
                      "given up in 2016; it must be pushed again by a newer tool"));
  }
  TRY_ASSIGN(json::Value root, parse_object(text, "image manifest", kMaxManifestSize));
  const Field top = {&root, ""};
  TRY(check_schema(top));
  TRY_ASSIGN(std::string own_type, text_of(top.at("mediaType")));
  // A generic type says nothing.
  const bool told = is_index_type(media_type) || is_manifest_type(media_type);
  if (told && !own_type.empty() && own_type != media_type) {
    return fail(wrong_field(top.at("mediaType"),
                            "'" + printable(media_type) + "', as which it was handed out"));
  }
  if (own_type.empty() && told) own_type = media_type;
  const bool has_manifests = top.at("manifests").present();
  const bool has_layers = top.at("layers").present() || top.at("config").present();
  // Two readers of such a text would not agree on what it is.
  if (has_manifests && has_layers) {
    return fail(Error::invalid("image manifest: found both layers and manifests; allowed is one"));
  }
  if (own_type.empty()) {
    own_type = has_manifests ? media::kOciIndex : media::kOciManifest;
  }
  if (is_index_type(own_type)) {
    if (!has_manifests) return fail(wrong_field(top.at("manifests"), "a list"));
    return index_of(top, std::move(own_type));
  }
  if (is_manifest_type(own_type)) return manifest_of(top, std::move(own_type));
  return fail(unimplemented("mediaType: found '" + printable(own_type) +
                            "'; allowed is a manifest or an index of OCI or Docker"));
}

Result<IndexEntry> choose(const Index& index, const Platform& wanted) {
  const IndexEntry* best = nullptr;
  int best_fit = 0;
  for (const IndexEntry& entry : index.entries) {
    const int now = entry.platform ? fit(*entry.platform, wanted) : 0;
    if (now > best_fit) {
      best = &entry;
      best_fit = now;
    }
  }
  if (best != nullptr) return *best;
  if (index.entries.size() == 1 && !index.entries[0].platform) return index.entries[0];
  std::vector<std::string> offered;
  for (const IndexEntry& entry : index.entries) {
    std::string text = entry.platform ? printable(entry.platform->text(), 60) : "(not told)";
    // What build tools add about a build is for no machine at all.
    if (text == "unknown/unknown" || std::ranges::find(offered, text) != offered.end()) continue;
    offered.push_back(std::move(text));
  }
  std::string text = "the image is not there for " + wanted.text() + "; it is for";
  if (offered.empty()) text += " nothing";
  constexpr std::size_t kMost = 32;
  for (std::size_t i = 0; i < offered.size() && i < kMost; ++i) {
    text += (i == 0 ? " " : ", ") + offered[i];
  }
  if (offered.size() > kMost) text += ", …";
  return fail(Error::not_found(std::move(text)));
}

Status check_layout_marker(std::string_view text) {
  TRY_ASSIGN(json::Value root, parse_object(text, "oci-layout", 64 << 10));
  const Field version = Field{&root, ""}.at("imageLayoutVersion");
  TRY_ASSIGN(const std::string found, text_of(version));
  if (!found.starts_with("1.")) return fail(wrong_field(version, "\"1.0.0\""));
  return {};
}

Result<Index> parse_layout_index(std::string_view text) {
  TRY_ASSIGN(auto parsed, parse_manifest(text, media::kOciIndex));
  if (Index* index = std::get_if<Index>(&parsed)) return std::move(*index);
  return fail(Error::invalid("index.json: found a manifest; allowed is an index"));
}

Result<std::vector<SavedImage>> parse_saved_images(std::string_view text) {
  auto root = json::parse(text, {.bytes = kMaxManifestSize, .depth = 32, .values = 200'000});
  if (!root.has_value()) return fail(std::move(root).error().with("manifest.json"));
  const Field top = {&*root, "manifest.json"};
  TRY_ASSIGN(std::vector<Field> items, items_of(top, kMaxIndexEntries));
  if (items.empty()) return fail(wrong_field(top, "a list of at least one image"));
  std::vector<SavedImage> images;
  const auto check_name = [](const Field& field, const std::string& name) -> Status {
    if (is_plain_file_name(name)) return {};
    return fail(wrong_field(field, "the name of a file in the archive"));
  };
  for (const Field& item : items) {
    SavedImage image;
    TRY_ASSIGN(image.config, required_text(item.at("Config")));
    TRY(check_name(item.at("Config"), image.config));
    TRY_ASSIGN(image.names, texts_of(item.at("RepoTags")));
    const Field layers = item.at("Layers");
    TRY_ASSIGN(std::vector<Field> names, items_of(layers, kMaxLayers));
    for (const Field& name : names) {
      TRY_ASSIGN(std::string layer, required_text(name));
      TRY(check_name(name, layer));
      image.layers.push_back(std::move(layer));
    }
    images.push_back(std::move(image));
  }
  return images;
}

std::string encode(const Manifest& manifest) {
  const auto described = [](const Descriptor& descriptor) {
    json::Value value = json::Value::object();
    value.set("mediaType", descriptor.media_type);
    value.set("digest", "sha256:" + descriptor.digest);
    value.set("size", descriptor.size);
    return value;
  };
  json::Value layers = json::Value::array();
  for (const Descriptor& layer : manifest.layers) layers.push(described(layer));
  json::Value root = json::Value::object();
  root.set("schemaVersion", 2);
  root.set("mediaType", manifest.media_type);
  root.set("config", described(manifest.config));
  root.set("layers", std::move(layers));
  return json::serialize(root);
}

std::optional<LayerPacking> layer_packing(std::string_view media_type) {
  struct Row {
    std::string_view type;
    LayerPacking packing;
  };
  constexpr std::array<Row, 6> kRows = {{{media::kOciLayer, LayerPacking::kNone},
                                         {media::kDockerLayer, LayerPacking::kNone},
                                         {media::kOciLayerGzip, LayerPacking::kGzip},
                                         {media::kDockerLayerGzip, LayerPacking::kGzip},
                                         {media::kOciLayerZstd, LayerPacking::kZstd},
                                         {media::kDockerLayerZstd, LayerPacking::kZstd}}};
  const auto row = std::ranges::find(kRows, media_type, &Row::type);
  if (row == kRows.end()) return std::nullopt;
  return row->packing;
}

}  // namespace caisson::image
