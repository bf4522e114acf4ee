#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/file_time.h"
#include "guest/files.h"

namespace caisson::guest {
namespace {

using proto::Tag;

constexpr std::size_t kReadChunk = 32 * 1024;

// Opens without waiting and refuses what is not a regular file.
Result<Fd> open_regular(const std::string& path, int flags, mode_t mode) {
  Fd file(::open(path.c_str(), flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, mode));
  if (!file.valid()) return fail_errno("open " + path);
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fail_errno("fstat " + path);
  if (!S_ISREG(status.st_mode)) return fail(Error::precondition(path + " is not a regular file"));
  return file;
}

Status write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno("write " + path);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

// All input to `fd`; then the number of bytes.
Status take_input(int fd, const std::string& path, WorkerLink& link) {
  std::uint64_t total = 0;
  for (;;) {
    TRY_ASSIGN(const std::optional<std::string> bytes, link.input());
    if (!bytes) break;
    TRY(write_all(fd, *bytes, path));
    total += bytes->size();
  }
  return link.event(proto::Fields().put_u64(Tag::kSize, total));
}

struct WriteOptions {
  std::optional<mode_t> mode;
  std::optional<std::uint64_t> modified;  // nanoseconds, base/file_time.h
  bool append = false, exclusive = false, atomic = false;
};

// After the last byte: writing would change the time again.
Status set_modified(int fd, const WriteOptions& options, const std::string& path) {
  if (options.modified && ::futimens(fd, ModificationTime(*options.modified).times) != 0)
    return fail_errno("setting the times of " + path);
  return {};
}

Result<std::string> temporary_name(const std::string& path) {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != sizeof(random)) return fail_errno("getrandom");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string name = path.substr(0, path.rfind('/') + 1) + ".caisson-";
  for (int i = 0; i < 16; ++i) name += kDigits[(random >> (4 * i)) & 15];
  return name;
}

// Written beside the file and renamed over it: a reader sees the old contents or the new.
Status write_atomically(const std::string& path, const WriteOptions& options, WorkerLink& link) {
  mode_t mode = options.mode.value_or(0644);
  struct stat old{};
  const bool replaces = ::stat(path.c_str(), &old) == 0;
  if (replaces && !S_ISREG(old.st_mode))
    return fail(Error::precondition(path + " is not a regular file"));
  if (replaces && !options.mode) mode = old.st_mode & 0777;
  TRY_ASSIGN(const std::string temporary, temporary_name(path));
  const auto write = [&]() -> Status {
    TRY_ASSIGN(const Fd file, open_regular(temporary, O_WRONLY | O_CREAT | O_EXCL, 0600));
    TRY(take_input(file.get(), path, link));
    TRY(set_modified(file.get(), options, path));
    if (::fchmod(file.get(), mode) != 0) return fail_errno("chmod " + path);
    if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(),
                    options.exclusive ? RENAME_NOREPLACE : 0) != 0)
      return fail_errno("rename to " + path);
    return {};
  };
  Status status = write();
  if (!status) ::unlink(temporary.c_str());
  return status;
}

}  // namespace

Status read_file(const proto::FieldReader& fields, WorkerLink& link) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::uint64_t offset, number_field(fields, Tag::kOffset, 0));
  TRY_ASSIGN(std::uint64_t left, number_field(fields, Tag::kSize, UINT64_MAX));
  TRY_ASSIGN(const Fd file, open_regular(path, O_RDONLY, 0));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fail_errno("fstat " + path);
  if (offset > 0 && ::lseek(file.get(), static_cast<off_t>(offset), SEEK_SET) < 0)
    return fail_errno("seek in " + path);
  proto::Fields event;
  put_status(event, status);
  TRY(link.event(event));
  char bytes[kReadChunk];
  while (left > 0) {
    const ssize_t count = ::read(file.get(), bytes, std::min<std::uint64_t>(sizeof(bytes), left));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno("read " + path);
    if (count == 0) break;
    TRY(link.data(std::string_view(bytes, static_cast<std::size_t>(count))));
    left -= static_cast<std::uint64_t>(count);
  }
  return {};
}

Status write_file(const proto::FieldReader& fields, WorkerLink& link) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::uint64_t append, number_field(fields, Tag::kAppend, 0));
  TRY_ASSIGN(const std::uint64_t exclusive, number_field(fields, Tag::kExclusive, 0));
  TRY_ASSIGN(const std::uint64_t atomic, number_field(fields, Tag::kAtomic, 0));
  TRY_ASSIGN(const std::uint64_t parents, number_field(fields, Tag::kRecursive, 0));
  WriteOptions options{.append = append != 0, .exclusive = exclusive != 0, .atomic = atomic != 0};
  if (fields.has(Tag::kMtimeNs)) {
    TRY_ASSIGN(options.modified, fields.number(Tag::kMtimeNs));
  }
  if (fields.has(Tag::kMode)) {
    TRY_ASSIGN(const std::uint64_t mode, fields.number(Tag::kMode));
    if (mode > 0777) return fail(Error::invalid("write " + path + ": the mode is above 0777"));
    options.mode = static_cast<mode_t>(mode);
  }
  if (options.append && options.atomic)
    return fail(Error::invalid("write " + path + ": append and atomic exclude each other"));
  const std::size_t slash = path.rfind('/');
  if (parents != 0 && slash > 0) TRY(make_directory(path.substr(0, slash), 0755, true));
  if (options.atomic) return write_atomically(path, options, link);

  int flags = O_WRONLY | O_CREAT;
  if (options.exclusive) flags |= O_EXCL;
  if (options.append) flags |= O_APPEND;
  TRY_ASSIGN(const Fd file, open_regular(path, flags, options.mode.value_or(0644)));
  // Not by O_TRUNC, which would act before the kind of the file is known.
  if (!options.append && ::ftruncate(file.get(), 0) != 0) return fail_errno("truncate " + path);
  if (options.mode && ::fchmod(file.get(), *options.mode) != 0) return fail_errno("chmod " + path);
  TRY(take_input(file.get(), path, link));
  return set_modified(file.get(), options, path);
}

}  // namespace caisson::guest
