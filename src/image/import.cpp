#include "image/import.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "image/files.h"
#include "image/sha256.h"

namespace caisson::image {
namespace {

struct Input {
  int fd = -1;
  Fd spool;  // where fd was no regular file: a nameless copy
  std::string digest;
};

Status write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t done = TEMP_FAILURE_RETRY(write(fd, bytes.data(), bytes.size()));
    if (done < 0) return fail_errno("write a copy of the archive");
    bytes.remove_prefix(static_cast<std::size_t>(done));
  }
  return {};
}

Result<Input> take_input(const Store& store, int archive_fd, const UnpackLimits& limits) {
  struct stat status = {};
  if (fstat(archive_fd, &status) != 0) return fail_errno("stat the archive");
  if (S_ISDIR(status.st_mode)) {
    return fail(Error::invalid("the archive is a directory; a tar file is needed"));
  }
  Input input;
  const bool regular = S_ISREG(status.st_mode);
  if (regular) {
    input.fd = archive_fd;
  } else {
    input.spool = Fd(openat(store.directory_fd(), "tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (!input.spool.valid()) return fail_errno("make a file for a copy of the archive");
    input.fd = input.spool.get();
  }
  Sha256 hash;
  std::vector<char> buffer(128 * 1024);
  for (std::uint64_t total = 0;;) {
    ssize_t got = TEMP_FAILURE_RETRY(
        regular ? pread(archive_fd, buffer.data(), buffer.size(), static_cast<off_t>(total))
                : read(archive_fd, buffer.data(), buffer.size()));
    if (got < 0) return fail_errno("read the archive");
    if (got == 0) {
      if (total == 0) return fail(Error::invalid("the archive is empty (0 bytes)"));
      break;
    }
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(got));
    total += bytes.size();
    if (total > limits.archive) {
      return fail(Error::invalid("the archive is larger than " + std::to_string(limits.archive) +
                                 " bytes, the most that is allowed"));
    }
    hash.update(bytes);
    if (!regular) TRY(write_all(input.fd, bytes));
  }
  input.digest = hash.finish();
  return input;
}

Result<UnpackReport> unpack_into(Workspace& workspace, const Input& input, const IdMapping& ids,
                                 const UnpackLimits& limits, const Progress& progress) {
  TRY_ASSIGN(Fd root, open_or_make_directory_at(workspace.directory_fd(), "rootfs"));
  if (fchmod(root.get(), 0755) != 0) return fail_errno("chmod rootfs");
  if (ids.layout == IdLayout::kShifted && fchown(root.get(), ids.uid_base, ids.gid_base) != 0) {
    return fail_errno("chown rootfs");
  }
  return unpack_by_worker(input.fd, input.digest, root.get(), workspace.lock_fd(), ids, limits,
                          progress);
}

std::string megabytes(std::uint64_t bytes) {
  const std::uint64_t tenths = (bytes * 10 + 524288) >> 20;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

}  // namespace

std::string ImportReport::text() const {
  std::string text = reference.text() + ": " + std::to_string(info.entries) + " entries, " +
                     megabytes(info.bytes) + ", sha256:" + info.digest.substr(0, 12) +
                     (already_present ? " (already in the store)" : "") + "\n";
  auto note = [&](std::uint64_t count, std::string_view what) {
    if (count > 0) text += "note: " + std::to_string(count) + " " + std::string(what) + "\n";
  };
  note(unpacked.dropped_devices, "device nodes left out: a sandbox has a /dev of its own");
  note(unpacked.dropped_attributes, "entries stored without their extended attributes and ACLs");
  note(unpacked.absolute_names, "absolute names taken as names below the image's root");
  if (info.ids.layout == IdLayout::kSingle) {
    text +=
        "note: every file belongs to you, since you have no range of subordinate ids (65536 in "
        "/etc/subuid and /etc/subgid, and newuidmap); programs in the image see one user only\n";
  }
  return text;
}

Result<ImportReport> import_archive(Store& store, std::string_view name, int archive_fd,
                                    const UnpackLimits& limits, const Progress& progress) {
  ImportReport report;
  TRY_ASSIGN(report.reference, parse_reference(name));
  TRY_ASSIGN(Input input, take_input(store, archive_fd, limits));
  // From here on the same bytes are imported once: whoever waits finds them done.
  TRY_ASSIGN(Fd turn, store.lock_import(input.digest));
  TRY_ASSIGN(report.already_present, store.has_digest(input.digest));
  if (!report.already_present) {
    const IdMapping ids = mapping_of_caller();
    TRY_ASSIGN(Workspace workspace, store.make_workspace());
    auto unpacked = unpack_into(workspace, input, ids, limits, progress);
    if (!unpacked.has_value()) {
      // What cannot be removed now is invisible, and swept later.
      if (!store.discard(std::move(workspace)).has_value()) errno = 0;
      return fail(std::move(unpacked).error().with("import " + report.reference.text()));
    }
    report.unpacked = *unpacked;
    report.info = {
        .digest = input.digest, .ids = ids, .entries = unpacked->entries, .bytes = unpacked->bytes};
    TRY(store.commit(std::move(workspace), report.info));
  }
  TRY(store.set_reference(report.reference, input.digest));
  if (report.already_present) {
    TRY_ASSIGN(ImageRef present, store.resolve(report.reference.text()));
    report.info = present.info;
  }
  return report;
}

}  // namespace caisson::image
