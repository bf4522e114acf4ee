// The store's blobs: written to a file of their own, hashed, synced, renamed into place.
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "base/kernel_abi.h"
#include "base/sha256.h"
#include "image/files.h"
#include "image/store.h"
#include "image/store_steps.h"

namespace caisson::image {
namespace {

constexpr std::size_t kBufferSize = 256 * 1024;

// Error: not_found; anything else names the blob.
Result<Fd> open_blob_at(int directory_fd, const std::string& digest) {
  if (!is_sha256(digest)) {
    return fail(Error::invalid("'" + printable(digest) + "' is no SHA-256"));
  }
  Fd fd(openat(directory_fd, ("blobs/" + digest).c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) {
    return fail(Error::not_found("no blob sha256:" + digest + " in the store"));
  }
  if (!fd.valid()) return fail_errno("open blob sha256:" + digest);
  return fd;
}

Result<std::string> digest_of(int file_fd) {
  Sha256 hash;
  std::vector<char> buffer(kBufferSize);
  for (std::uint64_t at = 0;;) {
    const ssize_t got =
        TEMP_FAILURE_RETRY(pread(file_fd, buffer.data(), buffer.size(), static_cast<off_t>(at)));
    if (got < 0) return fail_errno("read a blob");
    if (got == 0) return hash.finish();
    hash.update({buffer.data(), static_cast<std::size_t>(got)});
    at += static_cast<std::uint64_t>(got);
  }
}

}  // namespace

bool Store::has_blob(const std::string& digest) {
  return is_sha256(digest) && has("blobs/" + digest);
}

Result<Fd> Store::open_blob(const std::string& digest) {
  return open_blob_at(directory_.get(), digest);
}

Result<std::string> Store::read_blob_bytes(const std::string& digest) {
  TRY_ASSIGN(const Fd file, open_blob_at(directory_.get(), digest));
  struct stat status = {};
  if (fstat(file.get(), &status) != 0) return fail_errno("stat blob sha256:" + digest);
  if (static_cast<std::uint64_t>(status.st_size) > kMaxReadBlob) {
    return fail(Error::invalid("blob sha256:" + digest + " has " + std::to_string(status.st_size) +
                               " bytes; what is read whole may have " +
                               std::to_string(kMaxReadBlob)));
  }
  std::string bytes(static_cast<std::size_t>(status.st_size), '\0');
  std::size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t got = TEMP_FAILURE_RETRY(
        pread(file.get(), bytes.data() + have, bytes.size() - have, static_cast<off_t>(have)));
    if (got < 0) return fail_errno("read blob sha256:" + digest);
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  bytes.resize(have);
  return bytes;
}

Result<std::string> Store::read_blob(const std::string& digest) {
  TRY_ASSIGN(std::string bytes, read_blob_bytes(digest));
  Sha256 hash;
  hash.update(bytes);
  if (hash.finish() != digest) {
    return fail(Error(Code::kDataLoss, "blob sha256:" + digest + " is damaged on this disk"));
  }
  return bytes;
}

Result<std::string> Store::put_blob(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes);
  std::string digest = hash.finish();
  TRY(begin_adding());
  if (has_blob(digest)) return digest;
  TRY_ASSIGN(PartialBlob blob, begin_blob(std::nullopt));
  blob.hashed = digest;
  for (std::string_view rest = bytes; !rest.empty();) {
    const ssize_t done = TEMP_FAILURE_RETRY(write(blob.file.get(), rest.data(), rest.size()));
    if (done < 0) {
      auto error = fail_errno("write a blob into the image store");
      if (!discard_blob(std::move(blob)).has_value()) errno = 0;
      return error;
    }
    rest.remove_prefix(static_cast<std::size_t>(done));
  }
  return commit_blob(std::move(blob));
}

Result<PartialBlob> Store::begin_blob(const std::optional<std::string>& digest) {
  TRY(begin_adding());
  PartialBlob blob;
  if (!digest) {
    blob.name = "new." + random_name();
    TRY_ASSIGN(const int tmp, folder(Folder::kTmp));
    TRY_ASSIGN(std::optional<Fd> file,
               lock_file_at(tmp, blob.name, LockKind::kExclusive, LockWait::kWait));
    blob.file = std::move(*file);
    return blob;
  }
  if (!is_sha256(*digest)) {
    return fail(Error::invalid("'" + printable(*digest) + "' is no SHA-256"));
  }
  blob.digest = blob.name = *digest;
  blob.present = has_blob(*digest);
  if (blob.present) return blob;
  TRY_ASSIGN(const int partial, folder(Folder::kPartial));
  TRY_ASSIGN(std::optional<Fd> file,
             lock_file_at(partial, blob.name, LockKind::kExclusive, LockWait::kWait));
  blob.present = has_blob(*digest);
  if (blob.present) {  // whoever had the lock has made it
    if (unlinkat(partial, blob.name.c_str(), 0) != 0) return fail_errno("remove " + blob.name);
    return blob;
  }
  blob.file = std::move(*file);
  const off_t size = lseek(blob.file.get(), 0, SEEK_END);
  if (size < 0) return fail_errno("seek in a blob");
  blob.size = static_cast<std::uint64_t>(size);
  return blob;
}

Result<std::string> Store::commit_blob(PartialBlob blob) {
  if (blob.present) return blob.digest;
  const bool known = !blob.digest.empty();
  auto placed = [&]() -> Result<std::string> {
    TRY(enter_store_step("store-blob"));
    std::string digest = blob.hashed;
    if (digest.empty()) {
      TRY_ASSIGN(digest, digest_of(blob.file.get()));
    }
    if (known && digest != blob.digest) {
      return fail(Error(Code::kDataLoss, "a blob should have been sha256:" + blob.digest +
                                             " and is sha256:" + digest));
    }
    if (fsync(blob.file.get()) != 0) return fail_errno("fsync a blob");
    TRY_ASSIGN(const int from, folder(known ? Folder::kPartial : Folder::kTmp));
    TRY_ASSIGN(const int blobs, folder(Folder::kBlobs));
    TRY(enter_store_step("store-blob-move"));
    TRY_ASSIGN(Fd held, lock());
    if (known) {
      const Fd mark(openat(from, (digest + ".kept").c_str(),
                           O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
      if (!mark.valid()) return fail_errno("make " + digest + ".kept");
    }
    if (renameat(from, blob.name.c_str(), blobs, digest.c_str()) != 0) {
      return fail_errno("move a blob into place");
    }
    TRY(enter_store_step("store-blob-done"));
    if (fsync(blobs) != 0) return fail_errno("fsync blobs");
    return digest;
  }();
  if (placed.has_value()) return placed;
  // Bytes of a known digest stay for another try, but not the wrong ones.
  if (!known || placed.error().code() == Code::kDataLoss) {
    if (!discard_blob(std::move(blob)).has_value()) errno = 0;
  }
  return placed;
}

Status Store::discard_blob(PartialBlob blob) {
  if (!blob.file.valid()) return {};
  TRY_ASSIGN(const int from, folder(blob.digest.empty() ? Folder::kTmp : Folder::kPartial));
  if (unlinkat(from, blob.name.c_str(), 0) != 0 && errno != ENOENT) {
    return fail_errno("remove " + blob.name);
  }
  return {};
}

}  // namespace caisson::image
