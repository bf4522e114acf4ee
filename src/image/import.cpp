#include "image/import.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "base/sha256.h"
#include "image/config.h"
#include "image/files.h"
#include "image/manifest.h"
#include "image/rootfs_worker.h"
#include "image/store_steps.h"

namespace caisson::image {
namespace {

Status write_bytes(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t done = TEMP_FAILURE_RETRY(write(fd, bytes.data(), bytes.size()));
    if (done < 0) return fail_errno("write the archive into the image store");
    bytes.remove_prefix(static_cast<std::size_t>(done));
  }
  return {};
}

// How the archive is packed, by its first bytes.
std::string_view media_type_of(std::string_view beginning) {
  using namespace std::string_view_literals;
  if (beginning.starts_with("\x1f\x8b"sv)) return media::kOciLayerGzip;
  if (beginning.starts_with("\x28\xb5\x2f\xfd"sv)) return media::kOciLayerZstd;
  if (beginning.starts_with("\xfd"
                            "7zXZ\0"sv)) {
    return kXzLayer;
  }
  return media::kOciLayer;
}

Result<Descriptor> copy_archive(int archive_fd, int blob_fd, const UnpackLimits& limits) {
  struct stat status = {};
  if (fstat(archive_fd, &status) != 0) return fail_errno("stat the archive");
  if (S_ISDIR(status.st_mode)) {
    return fail(Error::invalid("the archive is a directory; a tar file is needed"));
  }
  const bool regular = S_ISREG(status.st_mode);
  Descriptor copied;
  Sha256 hash;
  std::uint64_t begun = 0;
  std::vector<char> buffer(256 * 1024);
  for (;;) {
    const ssize_t got = TEMP_FAILURE_RETRY(
        regular ? pread(archive_fd, buffer.data(), buffer.size(), static_cast<off_t>(copied.size))
                : read(archive_fd, buffer.data(), buffer.size()));
    if (got < 0) return fail_errno("read the archive");
    if (got == 0) break;
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
    if (copied.size == 0) copied.media_type = media_type_of(bytes);
    copied.size += bytes.size();
    if (copied.size > limits.archive) {
      return fail(Error::invalid("the archive is larger than " + std::to_string(limits.archive) +
                                 " bytes, the most that is allowed"));
    }
    TRY(write_bytes(blob_fd, bytes));
    begun = begin_writing(blob_fd, begun, copied.size);
    hash.update(bytes);
  }
  if (copied.size == 0) return fail(Error::invalid("the archive is empty (0 bytes)"));
  copied.digest = hash.finish();
  return copied;
}

// The archive's bytes, which are not in their place as a blob yet.
struct Archive {
  PartialBlob blob;
  Descriptor descriptor;
};

Result<Archive> take_archive(Store& store, int archive_fd, const UnpackLimits& limits) {
  TRY_ASSIGN(PartialBlob blob, store.begin_blob(std::nullopt));
  auto copied = copy_archive(archive_fd, blob.file.get(), limits);
  if (!copied.has_value()) {
    if (!store.discard_blob(std::move(blob)).has_value()) errno = 0;
    return fail(std::move(copied).error());
  }
  blob.hashed = copied->digest;
  return Archive{std::move(blob), std::move(*copied)};
}

ImageContent content_of(LayerRef layer) {
  ImageConfig config;
  config.architecture = host_architecture();
  config.diff_ids = {layer.diff_id};
  config.history = {{.created_by = "caisson image import"}};
  return {.config = encode(config), .layers = {std::move(layer)}, .manifest = {}};
}

struct Unpacked {
  Workspace workspace;
  RootfsInfo rootfs;
  UnpackReport counts;
  LayerRef layer;
};

Result<Unpacked> unpack(Store& store, const Archive& archive, const UnpackLimits& limits,
                        const Progress& progress) {
  TRY_ASSIGN(Workspace workspace, store.make_workspace());
  TRY_ASSIGN(const RootfsForm form, store.preferred_form());
  Unpacked unpacked{.workspace = std::move(workspace),
                    .rootfs = {.form = form, .ids = mapping_of_caller()},
                    .counts = {},
                    .layer = {}};
  auto done = [&]() -> Status {
    TRY_ASSIGN(RootfsWorker worker,
               RootfsWorker::start(unpacked.rootfs.form, unpacked.workspace.directory_fd(),
                                   unpacked.workspace.lock_fd(), unpacked.rootfs.ids, limits));
    TRY_ASSIGN(LayerReport applied,
               worker.apply(archive.blob.file.get(), {.blob = archive.descriptor, .diff_id = {}},
                            progress));
    TRY_ASSIGN(const RootfsReport report, worker.finish());
    unpacked.counts = applied.counts;
    unpacked.layer = std::move(applied.layer);
    unpacked.rootfs.entries = report.entries;
    unpacked.rootfs.bytes = report.bytes;
    return enter_store_step("store-unpack");
  }();
  if (done.has_value()) return unpacked;
  // What cannot be removed now is invisible, and swept later.
  if (!store.discard(std::move(unpacked.workspace)).has_value()) errno = 0;
  return fail(std::move(done).error());
}

Result<ImportReport> import_named(Store& store, Reference reference, int archive_fd,
                                  const UnpackLimits& limits, const Progress& progress) {
  ImportReport report;
  report.reference = std::move(reference);
  TRY_ASSIGN(Archive archive, take_archive(store, archive_fd, limits));
  // From here on the same bytes are imported once: whoever waits finds them done.
  TRY_ASSIGN(Fd turn, store.lock_work("import-" + archive.descriptor.digest));
  TRY_ASSIGN(std::optional<LayerRef> known, store.find_layer(archive.descriptor.digest));
  if (known) {
    TRY(store.commit_blob(std::move(archive.blob)));
    TRY_ASSIGN(report.info, store.add_image(content_of(std::move(*known)), limits, progress));
    report.already_present = !report.info.flattened;
  } else {
    // The disk takes the archive meanwhile; syncing it then hardly waits.
    auto unpacked = unpack(store, archive, limits, progress);
    if (!unpacked.has_value()) {
      if (!store.discard_blob(std::move(archive.blob)).has_value()) errno = 0;
      return fail(std::move(unpacked).error());
    }
    report.unpacked = unpacked->counts;
    TRY(store.commit_blob(std::move(archive.blob)));
    store.vouch(unpacked->layer);
    TRY_ASSIGN(report.info,
               store.add_image(content_of(std::move(unpacked->layer)),
                               std::move(unpacked->workspace), std::move(unpacked->rootfs)));
  }
  TRY(store.set_reference(report.reference, report.info.record.id));
  return report;
}

std::string megabytes(std::uint64_t bytes) {
  const std::uint64_t tenths = (bytes * 10 + 524288) >> 20;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

}  // namespace

std::string ImportReport::text() const {
  const RootfsInfo rootfs = info.rootfs.value_or(RootfsInfo());
  std::string text = reference.text() + ": " + std::to_string(rootfs.entries) + " entries, " +
                     megabytes(rootfs.bytes) + ", sha256:" + info.record.id.substr(0, 12) +
                     (already_present ? " (already in the store)" : "") + "\n";
  auto note = [&](std::uint64_t count, std::string_view what) {
    if (count > 0) text += "note: " + std::to_string(count) + " " + std::string(what) + "\n";
  };
  note(unpacked.dropped_devices, "device nodes left out: a sandbox has a /dev of its own");
  note(unpacked.dropped_attributes, "entries stored without their extended attributes and ACLs");
  note(unpacked.absolute_names, "absolute names taken as names below the image's root");
  if (rootfs.ids.layout == IdLayout::kSingle) {
    text +=
        "note: every file belongs to you, since you have no range of subordinate ids (65536 in "
        "/etc/subuid and /etc/subgid, and newuidmap); programs in the image see one user only\n";
  }
  return text;
}

Result<ImportReport> import_archive(Store& store, std::string_view name, int archive_fd,
                                    const UnpackLimits& limits, const Progress& progress) {
  TRY_ASSIGN(Reference reference, parse_reference(name));
  if (!reference.digest.empty()) {
    return fail(Error::invalid("image name '" + reference.text() +
                               "': an archive has no digest of a registry; leave '@sha256:…' out"));
  }
  auto report = import_named(store, reference, archive_fd, limits, progress);
  // What an error left, or the name meant before, may be nobody's now; if that cannot be removed,
  // the next sweep will.
  if (!store.sweep().has_value()) errno = 0;
  if (!report.has_value()) {
    return fail(std::move(report).error().with("import " + reference.text()));
  }
  return report;
}

}  // namespace caisson::image
