#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/json.h"
#include "base/sha256.h"
#include "image/transfer/saved_image.h"
#include "image/transfer/tar_members.h"

namespace caisson::image {
namespace {

Status write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = TEMP_FAILURE_RETRY(::write(fd, bytes.data(), bytes.size()));
    if (done < 0) return fail_errno("write the archive");
    bytes.remove_prefix(static_cast<std::size_t>(done));
  }
  return {};
}

class TarWriter {
 public:
  explicit TarWriter(int fd) : fd_(fd) {}

  Status add(const std::string& name, std::string_view bytes) {
    if (!names_.insert(name).second) return {};  // a layer that is there twice
    TRY(write_all(fd_, saved_tar_header(name, bytes.size())));
    TRY(write_all(fd_, bytes));
    return write_all(fd_, saved_tar_padding(bytes.size()));
  }

  Status add_file(const std::string& name, int file_fd, std::uint64_t size) {
    if (!names_.insert(name).second) return {};
    TRY(write_all(fd_, saved_tar_header(name, size)));
    std::vector<char> buffer(256 << 10);
    for (std::uint64_t at = 0; at < size;) {
      const std::size_t wanted =
          static_cast<std::size_t>(std::min<std::uint64_t>(buffer.size(), size - at));
      const ssize_t got =
          TEMP_FAILURE_RETRY(::pread(file_fd, buffer.data(), wanted, static_cast<off_t>(at)));
      if (got < 0) return fail_errno("read a blob");
      if (got == 0) return fail(Error(Code::kDataLoss, name + " is shorter than it was"));
      TRY(write_all(fd_, {buffer.data(), static_cast<std::size_t>(got)}));
      at += static_cast<std::uint64_t>(got);
    }
    return write_all(fd_, saved_tar_padding(size));
  }

  Status finish() { return write_all(fd_, saved_tar_end()); }

 private:
  int fd_;
  std::set<std::string> names_;
};

Status check_layers(const ImageRecord& record) {
  for (const LayerRef& layer : record.layers) {
    if (layer_packing(layer.blob.media_type)) continue;
    return fail(Error(Code::kUnimplemented,
                      "layer sha256:" + layer.blob.digest + " is '" +
                          printable(layer.blob.media_type) +
                          "', which no other tool reads; import its archive again, compressed "
                          "with zstd or gzip"));
  }
  return {};
}

Result<std::string> manifest_of(Store& store, const ImageRecord& record) {
  if (!record.manifest.empty()) return store.read_blob(record.manifest);
  Manifest manifest = {.media_type = std::string(media::kOciManifest),
                       .config = {.media_type = std::string(media::kOciConfig),
                                  .digest = record.id,
                                  .size = record.config_size},
                       .layers = {}};
  for (const LayerRef& layer : record.layers) manifest.layers.push_back(layer.blob);
  return encode(manifest);
}

Status write_layout(Store& store, const ImageRecord& record, const std::string& name,
                    TarWriter& tar) {
  TRY_ASSIGN(const std::string manifest, manifest_of(store, record));
  TRY_ASSIGN(const auto parsed, parse_manifest(manifest));
  const Manifest* own = std::get_if<Manifest>(&parsed);
  if (own == nullptr) return fail(Error(Code::kDataLoss, "the image's manifest is an index"));
  Sha256 hash;
  hash.update(manifest);
  const std::string digest = hash.finish();
  json::Value entry = json::Value::object();
  entry.set("mediaType", own->media_type).set("digest", "sha256:" + digest);
  entry.set("size", manifest.size());
  if (!name.empty()) {
    json::Value annotations = json::Value::object();
    annotations.set("org.opencontainers.image.ref.name", name);
    entry.set("annotations", std::move(annotations));
  }
  json::Value index = json::Value::object();
  index.set("schemaVersion", 2).set("mediaType", media::kOciIndex);
  index.set("manifests", json::Value::Array{std::move(entry)});

  const auto blob = [](const std::string& hex) { return "blobs/sha256/" + hex; };
  TRY(tar.add("oci-layout", R"({"imageLayoutVersion":"1.0.0"})"));
  TRY(tar.add("index.json", json::serialize(index)));
  TRY(tar.add(blob(digest), manifest));
  TRY_ASSIGN(const Fd config, store.open_blob(record.id));
  TRY(tar.add_file(blob(record.id), config.get(), record.config_size));
  for (const LayerRef& layer : record.layers) {
    TRY_ASSIGN(const Fd file, store.open_blob(layer.blob.digest));
    TRY(tar.add_file(blob(layer.blob.digest), file.get(), layer.blob.size));
  }
  return tar.finish();
}

Status write_docker(Store& store, const ImageRecord& record, const std::string& name,
                    TarWriter& tar) {
  json::Value layers = json::Value::array();
  for (const LayerRef& layer : record.layers) {
    const std::string file = layer.blob.digest + ".tar";
    layers.push(file);
    TRY_ASSIGN(const Fd blob, store.open_blob(layer.blob.digest));
    TRY(tar.add_file(file, blob.get(), layer.blob.size));
  }
  const std::string config_name = record.id + ".json";
  TRY_ASSIGN(const Fd config, store.open_blob(record.id));
  TRY(tar.add_file(config_name, config.get(), record.config_size));
  json::Value image = json::Value::object();
  image.set("Config", config_name);
  json::Value names = json::Value::array();
  if (!name.empty()) names.push(name);
  image.set("RepoTags", std::move(names));
  image.set("Layers", std::move(layers));
  TRY(tar.add("manifest.json", json::serialize(json::Value::Array{std::move(image)})));
  return tar.finish();
}

}  // namespace

Status export_image(Store& store, const std::string& name, SavedForm form, int output_fd) {
  TRY_ASSIGN(const std::string id, store.find(name));
  TRY_ASSIGN(const ImageInfo info, store.info(id));
  TRY(check_layers(info.record));
  // By its name, or by any that it has where it was asked for by its id.
  std::string called;
  if (auto reference = parse_reference(name); reference.has_value() && store.contains(name)) {
    called = reference->text();
  } else {
    TRY_ASSIGN(const std::vector<Reference> names, store.names_of(id));
    if (!names.empty()) called = names.front().text();
  }
  // Docker's names have no digest.
  called = called.substr(0, called.find('@'));
  TarWriter tar(output_fd);
  return form == SavedForm::kLayout ? write_layout(store, info.record, called, tar)
                                    : write_docker(store, info.record, called, tar);
}

}  // namespace caisson::image
