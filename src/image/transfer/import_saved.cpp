#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/kernel_abi.h"
#include "base/sha256.h"
#include "base/sys.h"
#include "image/transfer/saved_image.h"
#include "image/transfer/tar_members.h"

namespace caisson::image {
namespace {

constexpr std::size_t kCopySize = 256 << 10;
constexpr int kMaxIndexDepth = 3;

// Bytes of a file, from `offset` on.
struct Piece {
  Fd own;  // where it was opened for this
  int fd = -1;
  std::uint64_t offset = 0, size = 0;
};

Result<std::string> read_piece(int fd, std::uint64_t offset, std::size_t size) {
  std::string bytes(size, '\0');
  std::size_t have = 0;
  while (have < size) {
    const ssize_t got = TEMP_FAILURE_RETRY(
        ::pread(fd, bytes.data() + have, size - have, static_cast<off_t>(offset + have)));
    if (got < 0) return fail_errno("read the archive");
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

// The files of a directory or of a tar, by their names.
class Files {
 public:
  static Result<Files> open(int fd) {
    struct stat status = {};
    if (::fstat(fd, &status) != 0) return fail_errno("stat the archive");
    Files files;
    files.fd_ = fd;
    files.is_directory_ = S_ISDIR(status.st_mode);
    if (files.is_directory_) return files;
    TRY_ASSIGN(files.members_, read_tar_members([&](std::uint64_t offset, std::size_t size) {
                 return read_piece(fd, offset, size);
               }));
    return files;
  }

  Result<Piece> find(const std::string& name) const {
    Piece piece;
    if (!is_directory_) {
      TRY_ASSIGN(const TarMember member, find_member(members_, name));
      piece.fd = fd_;
      piece.offset = member.offset;
      piece.size = member.size;
      return piece;
    }
    TRY_ASSIGN(piece.own, sys::openat2(fd_, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0,
                                       RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS));
    struct stat status = {};
    if (::fstat(piece.own.get(), &status) != 0) return fail_errno("stat " + name);
    if (!S_ISREG(status.st_mode)) return fail(Error::invalid(name + " is no regular file"));
    piece.fd = piece.own.get();
    piece.size = static_cast<std::uint64_t>(status.st_size);
    return piece;
  }
  bool has(const std::string& name) const { return find(name).has_value(); }

  Result<std::string> read(const std::string& name, std::size_t limit) const {
    TRY_ASSIGN(const Piece piece, find(name));
    if (piece.size > limit) {
      return fail(Error::invalid(printable(name) + " has " + std::to_string(piece.size) +
                                 " bytes; allowed are " + std::to_string(limit)));
    }
    TRY_ASSIGN(std::string bytes, read_piece(piece.fd, piece.offset, piece.size));
    if (bytes.size() != piece.size) {
      return fail(Error::invalid(printable(name) + " is cut off"));
    }
    return bytes;
  }

 private:
  int fd_ = -1;
  bool is_directory_ = false;
  TarMembers members_;
};

Status write_at(int fd, std::string_view bytes, std::uint64_t offset) {
  for (std::size_t at = 0; at < bytes.size();) {
    const ssize_t done = TEMP_FAILURE_RETRY(
        ::pwrite(fd, bytes.data() + at, bytes.size() - at, static_cast<off_t>(offset + at)));
    if (done < 0) return fail_errno("write into the image store");
    at += static_cast<std::size_t>(done);
  }
  return {};
}

Status copy_piece(const Piece& piece, int to_fd) {
  std::uint64_t done = 0;
  while (done < piece.size) {
    const auto size =
        static_cast<std::size_t>(std::min<std::uint64_t>(kCopySize, piece.size - done));
    TRY_ASSIGN(const std::string bytes, read_piece(piece.fd, piece.offset + done, size));
    if (bytes.size() != size) return fail(Error::invalid("the archive is cut off"));
    TRY(write_at(to_fd, bytes, done));
    done += size;
  }
  return {};
}

// The bytes of `piece` as a blob; with a digest they must have it.
Result<std::string> keep(Store& store, const Piece& piece,
                         const std::optional<std::string>& digest) {
  TRY_ASSIGN(PartialBlob blob, store.begin_blob(digest));
  if (blob.present) return blob.digest;
  Status copied = copy_piece(piece, blob.file.get());
  if (copied.has_value() && ::ftruncate(blob.file.get(), static_cast<off_t>(piece.size)) != 0) {
    copied = fail_errno("truncate a blob");
  }
  if (!copied.has_value()) {
    if (!store.discard_blob(std::move(blob)).has_value()) errno = 0;
    return fail(std::move(copied).error());
  }
  return store.commit_blob(std::move(blob));
}

Status check_digest(const std::string& name, std::string_view bytes, const Descriptor& expected) {
  Sha256 hash;
  hash.update(bytes);
  const std::string digest = hash.finish();
  if (bytes.size() == expected.size && digest == expected.digest) return {};
  return fail(Error(Code::kDataLoss, name + " has " + std::to_string(bytes.size()) +
                                         " bytes and is sha256:" + digest + "; declared are " +
                                         std::to_string(expected.size) +
                                         " bytes and sha256:" + expected.digest));
}

std::string blob_path(const std::string& digest) {
  return "blobs/sha256/" + digest;
}

// Of docker save: a layer says by its first bytes how it is packed.
std::string_view media_type_of(std::string_view first_bytes) {
  if (first_bytes.starts_with("\x1f\x8b")) return media::kOciLayerGzip;
  if (first_bytes.starts_with("\x28\xb5\x2f\xfd")) return media::kOciLayerZstd;
  return media::kOciLayer;
}

struct Found {
  std::vector<std::string> names;  // as the file has them
  ImageContent content;
};

Status check_platform(const ImageConfig& config, std::size_t layers) {
  const Platform own = {config.os, config.architecture, config.variant};
  const Platform wanted = host_platform();
  if (own.os != wanted.os || own.architecture != wanted.architecture) {
    return fail(Error::not_found("the image is not there for " + wanted.text() + "; it is for " +
                                 printable(own.text(), 60)));
  }
  if (config.diff_ids.size() != layers) {
    return fail(Error::invalid("the image's configuration lists " +
                               std::to_string(config.diff_ids.size()) + " layers; there are " +
                               std::to_string(layers)));
  }
  return {};
}

Result<Found> take_saved(Store& store, const Files& files, const SavedImage& image) {
  Found found = {.names = image.names, .content = {}};
  TRY_ASSIGN(found.content.config, files.read(image.config, kMaxConfigSize));
  TRY_ASSIGN(const ImageConfig config, parse_image_config(found.content.config));
  TRY(check_platform(config, image.layers.size()));
  for (std::size_t i = 0; i < image.layers.size(); ++i) {
    TRY_ASSIGN(const Piece piece, files.find(image.layers[i]));
    TRY_ASSIGN(const std::string first,
               read_piece(piece.fd, piece.offset, std::min<std::uint64_t>(4, piece.size)));
    TRY_ASSIGN(std::string digest, keep(store, piece, std::nullopt));
    found.content.layers.push_back({.blob = {.media_type = std::string(media_type_of(first)),
                                             .digest = std::move(digest),
                                             .size = piece.size},
                                    .diff_id = config.diff_ids[i]});
  }
  return found;
}

Result<Found> take_layout_entry(Store& store, const Files& files, IndexEntry entry) {
  Found found;
  if (!entry.reference_name.empty()) found.names.push_back(entry.reference_name);
  for (int depth = 0; depth < kMaxIndexDepth; ++depth) {
    const std::string path = blob_path(entry.manifest.digest);
    TRY_ASSIGN(std::string text, files.read(path, kMaxManifestSize));
    TRY(check_digest(path, text, entry.manifest));
    TRY_ASSIGN(auto parsed, parse_manifest(text, entry.manifest.media_type));
    if (const Index* index = std::get_if<Index>(&parsed)) {
      TRY_ASSIGN(entry, choose(*index, host_platform()));
      continue;
    }
    const Manifest& manifest = std::get<Manifest>(parsed);
    const std::string config_path = blob_path(manifest.config.digest);
    TRY_ASSIGN(found.content.config, files.read(config_path, kMaxConfigSize));
    TRY(check_digest(config_path, found.content.config, manifest.config));
    TRY_ASSIGN(const ImageConfig config, parse_image_config(found.content.config));
    TRY(check_platform(config, manifest.layers.size()));
    for (std::size_t i = 0; i < manifest.layers.size(); ++i) {
      const Descriptor& layer = manifest.layers[i];
      TRY_ASSIGN(const Piece piece, files.find(blob_path(layer.digest)));
      if (piece.size != layer.size) {
        return fail(
            Error(Code::kDataLoss, blob_path(layer.digest) + " has " + std::to_string(piece.size) +
                                       " bytes; declared are " + std::to_string(layer.size)));
      }
      TRY(keep(store, piece, layer.digest));
      found.content.layers.push_back({.blob = layer, .diff_id = config.diff_ids[i]});
    }
    found.content.manifest = std::move(text);
    return found;
  }
  return fail(Error::invalid("the layout's index leads to further indexes, " +
                             std::to_string(kMaxIndexDepth) + " deep; allowed is less"));
}

// Tools write a whole name or a tag alone; a tag is no name.
Result<std::vector<Reference>> references_of(const Found& found,
                                             const std::optional<Reference>& name) {
  if (name) return std::vector{*name};
  std::vector<Reference> references;
  for (const std::string& text : found.names) {
    if (text.find_first_of(":/") == std::string::npos) {
      return fail(Error::invalid("the file gives the image only the tag '" + printable(text) +
                                 "'; give it a NAME"));
    }
    TRY_ASSIGN(Reference reference, parse_reference(text));
    references.push_back(std::move(reference));
  }
  if (references.empty()) {
    return fail(Error::invalid("the file gives the image no name; give it a NAME"));
  }
  return references;
}

// What an index says beside its images: attestations and the like are for no machine.
bool is_image_entry(const IndexEntry& entry) {
  return !entry.platform || entry.platform->os != "unknown";
}

bool same_name(const IndexEntry& a, const IndexEntry& b) {
  return a.reference_name == b.reference_name;
}

// One entry for each name: of several with one name (or none) this machine's platform.
Result<std::vector<IndexEntry>> entries_of(const Index& index) {
  std::vector<IndexEntry> chosen;
  for (const IndexEntry& entry : index.entries) {
    if (!is_image_entry(entry)) continue;
    if (std::ranges::any_of(chosen, [&](const auto& other) { return same_name(entry, other); })) {
      continue;
    }
    Index group;
    for (const IndexEntry& other : index.entries) {
      if (is_image_entry(other) && same_name(entry, other)) group.entries.push_back(other);
    }
    if (group.entries.size() == 1) {
      chosen.push_back(entry);
    } else {
      TRY_ASSIGN(IndexEntry best, choose(group, host_platform()));
      chosen.push_back(std::move(best));
    }
  }
  if (chosen.empty()) return fail(Error::not_found("index.json lists no image"));
  return chosen;
}

Status check_count(std::size_t count, const std::optional<Reference>& name) {
  if (!name || count == 1) return {};
  return fail(Error::invalid("there are " + std::to_string(count) +
                             " images in it, so NAME cannot be all of them; leave it away to take "
                             "each under its own name"));
}

Result<std::vector<Found>> take_all(Store& store, SavedForm form, const Files& files,
                                    const std::optional<Reference>& name) {
  std::vector<Found> all;
  if (form == SavedForm::kDockerArchive) {
    TRY_ASSIGN(const std::string text, files.read("manifest.json", kMaxManifestSize));
    TRY_ASSIGN(const std::vector<SavedImage> images, parse_saved_images(text));
    TRY(check_count(images.size(), name));
    for (const SavedImage& image : images) {
      TRY_ASSIGN(Found found, take_saved(store, files, image));
      all.push_back(std::move(found));
    }
    return all;
  }
  TRY_ASSIGN(const std::string marker, files.read("oci-layout", 64 << 10));
  TRY(check_layout_marker(marker));
  TRY_ASSIGN(const std::string text, files.read("index.json", kMaxManifestSize));
  TRY_ASSIGN(const Index index, parse_layout_index(text));
  TRY_ASSIGN(const std::vector<IndexEntry> entries, entries_of(index));
  TRY(check_count(entries.size(), name));
  for (const IndexEntry& entry : entries) {
    TRY_ASSIGN(Found found, take_layout_entry(store, files, entry));
    all.push_back(std::move(found));
  }
  return all;
}

Result<std::vector<SavedImport>> import_all(Store& store, SavedForm form, int file_fd,
                                            const std::optional<Reference>& name,
                                            const UnpackLimits& limits, const Progress& progress) {
  TRY_ASSIGN(const Files files, Files::open(file_fd));
  TRY_ASSIGN(const std::vector<Found> all, take_all(store, form, files, name));
  std::vector<SavedImport> imports;
  for (const Found& found : all) {
    SavedImport import;
    TRY_ASSIGN(import.references, references_of(found, name));
    TRY_ASSIGN(ImageInfo info, store.add_image(found.content, limits, progress));
    for (const Reference& reference : import.references) {
      TRY(store.set_reference(reference, info.record.id));
    }
    import.image_id = info.record.id;
    import.layers = info.record.layers.size();
    import.bytes = info.record.layer_bytes();
    imports.push_back(std::move(import));
  }
  return imports;
}

}  // namespace

Result<Fd> as_file(const Store& store, Fd archive, std::uint64_t limit) {
  struct stat status = {};
  if (::fstat(archive.get(), &status) != 0) return fail_errno("stat the archive");
  if (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) return archive;
  Fd copy(::openat(store.directory_fd(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!copy.valid()) return fail_errno("make a file for a copy of the archive");
  std::vector<char> buffer(kCopySize);
  for (std::uint64_t total = 0;;) {
    const ssize_t got = TEMP_FAILURE_RETRY(::read(archive.get(), buffer.data(), buffer.size()));
    if (got < 0) return fail_errno("read the archive");
    if (got == 0) {
      if (total == 0) return fail(Error::invalid("the archive is empty (0 bytes)"));
      return copy;
    }
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
    if (bytes.size() > limit - total) {
      return fail(Error::invalid("the archive is larger than " + std::to_string(limit) +
                                 " bytes, the most that is allowed"));
    }
    TRY(write_at(copy.get(), bytes, total));
    total += bytes.size();
  }
}

std::optional<SavedForm> detect_saved_form(int file_fd) {
  const auto files = Files::open(file_fd);
  if (!files.has_value()) return std::nullopt;
  // Docker writes both forms into one archive; its own has the names that its users know.
  if (auto text = files->read("manifest.json", kMaxManifestSize); text.has_value()) {
    const auto images = parse_saved_images(*text);
    if (images.has_value() && files->has(images->front().config)) {
      return SavedForm::kDockerArchive;
    }
  }
  if (files->has("oci-layout") && files->has("index.json")) return SavedForm::kLayout;
  return std::nullopt;
}

Result<std::vector<SavedImport>> import_saved(Store& store, SavedForm form, int file_fd,
                                              const std::optional<Reference>& name,
                                              const UnpackLimits& limits,
                                              const Progress& progress) {
  auto imports = import_all(store, form, file_fd, name, limits, progress);
  // What cannot be swept now, the next to open the store sweeps.
  if (!store.sweep().has_value()) errno = 0;
  return imports;
}

}  // namespace caisson::image
