#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <compare>
#include <functional>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/file_time.h"
#include "guest/file_details.h"
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
  std::optional<Attributes> attributes;
  Owner owner;  // of what is created
  bool append = false, exclusive = false, atomic = false, parents = false;

  static Result<WriteOptions> wanted(const proto::FieldReader& fields, const std::string& path);
};

Result<WriteOptions> WriteOptions::wanted(const proto::FieldReader& fields,
                                          const std::string& path) {
  TRY_ASSIGN(const std::uint64_t append, number_field(fields, Tag::kAppend, 0));
  TRY_ASSIGN(const std::uint64_t exclusive, number_field(fields, Tag::kExclusive, 0));
  TRY_ASSIGN(const std::uint64_t atomic, number_field(fields, Tag::kAtomic, 0));
  TRY_ASSIGN(const std::uint64_t parents, number_field(fields, Tag::kRecursive, 0));
  WriteOptions options;
  options.append = append != 0;
  options.exclusive = exclusive != 0;
  options.atomic = atomic != 0;
  options.parents = parents != 0;
  TRY_ASSIGN(options.attributes, Attributes::wanted(fields));
  TRY_ASSIGN(options.owner, Owner::wanted(fields));
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
  return options;
}

Status set_attributes(int fd, const WriteOptions& options, const std::string& path) {
  return options.attributes ? options.attributes->apply(fd, path) : Status();
}

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

// Written by `fill` beside the file and renamed over it: a reader sees the old contents or the new.
// What is replaced hands down its mode, and its owner where the caller may give files away.
Status replace_file(const std::string& path, const WriteOptions& options,
                    const std::function<Status(int fd)>& fill) {
  mode_t mode = options.mode.value_or(0644);
  Owner owner = options.owner;
  struct stat old{};
  const bool replaces = ::stat(path.c_str(), &old) == 0;
  if (replaces && !S_ISREG(old.st_mode))
    return fail(Error::precondition(path + " is not a regular file"));
  if (replaces && !options.mode) mode = old.st_mode & 0777;
  if (replaces && owner.given()) owner = Owner(old.st_uid, old.st_gid);
  TRY_ASSIGN(const std::string temporary, temporary_name(path));
  const auto write = [&]() -> Status {
    TRY_ASSIGN(const Fd file, open_regular(temporary, O_WRONLY | O_CREAT | O_EXCL, 0600));
    TRY(fill(file.get()));
    TRY(set_attributes(file.get(), options, path));
    TRY(owner.give(file.get(), path));
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

// Opens the file itself to write to, and gives it to its owner where it had to be created.
Result<Fd> open_in_place(const std::string& path, const WriteOptions& options) {
  const int flags = O_WRONLY | (options.append ? O_APPEND : 0);
  const mode_t mode = options.mode.value_or(0644);
  Result<Fd> file = open_regular(path, flags | O_CREAT | O_EXCL, mode);
  if (!file && file.error().error_number() == EEXIST && !options.exclusive) {
    file = open_regular(path, flags, mode);
    if (file || file.error().error_number() != ENOENT) return file;
    file = open_regular(path, flags | O_CREAT, mode);  // a link to what is not there
  }
  TRY_ASSIGN(Fd created, std::move(file));
  if (Status given = options.owner.give(created.get(), path); !given) {
    ::unlink(path.c_str());
    return fail(std::move(given).error());
  }
  return created;
}

// The inode behind a path, to tell whether two paths are one file.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  auto operator<=>(const Identity&) const = default;
};

// The sources of a composition: regular files, all of them different, none the destination.
Result<std::vector<std::string>> sources_of(const proto::FieldReader& fields,
                                            const std::string& path) {
  std::vector<std::string> sources;
  std::set<Identity> seen;
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0) seen.insert({status.st_dev, status.st_ino});
  for (const std::string_view field : fields.all(Tag::kSource)) {
    TRY_ASSIGN(std::string source, checked_path(field));
    TRY_ASSIGN(const Fd file, open_regular(source, O_RDONLY, 0));
    if (::fstat(file.get(), &status) != 0) return fail_errno("fstat " + source);
    if (!seen.insert({status.st_dev, status.st_ino}).second || source == path)
      return fail(
          Error::invalid("compose " + path + ": " + source + " is the destination or given twice"));
    sources.push_back(std::move(source));
  }
  if (sources.empty()) return fail(Error::invalid("compose " + path + ": no sources"));
  return sources;
}

Status append_file(int to_fd, const std::string& path, const std::string& source,
                   WorkerLink& link) {
  TRY_ASSIGN(const Fd file, open_regular(source, O_RDONLY, 0));
  char bytes[kReadChunk];
  for (;;) {
    // A worker that stays longer than this would be killed, and leave what it has made.
    if (link.given_up()) return fail(Error(Code::kCancelled, "given up by the peer"));
    const ssize_t count = ::read(file.get(), bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno("read " + source);
    if (count == 0) return {};
    TRY(write_all(to_fd, {bytes, static_cast<std::size_t>(count)}, path));
  }
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
  TRY_ASSIGN(const WriteOptions options, WriteOptions::wanted(fields, path));
  if (options.parents) TRY(make_parents(path, options.owner));
  if (options.atomic)
    return replace_file(path, options, [&](int fd) { return take_input(fd, path, link); });

  TRY_ASSIGN(const Fd file, open_in_place(path, options));
  // Not by O_TRUNC, which would act before the kind of the file is known.
  if (!options.append && ::ftruncate(file.get(), 0) != 0) return fail_errno("truncate " + path);
  if (options.mode && ::fchmod(file.get(), *options.mode) != 0) return fail_errno("chmod " + path);
  TRY(take_input(file.get(), path, link));
  TRY(set_attributes(file.get(), options, path));
  return set_modified(file.get(), options, path);
}

Status compose_file(const proto::FieldReader& fields, WorkerLink& link) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const WriteOptions options, WriteOptions::wanted(fields, path));
  TRY_ASSIGN(const std::vector<std::string> sources, sources_of(fields, path));
  if (options.parents) TRY(make_parents(path, options.owner));
  TRY(replace_file(path, options, [&](int fd) -> Status {
    for (const std::string& source : sources) TRY(append_file(fd, path, source, link));
    return {};
  }));
  for (const std::string& source : sources)
    if (::unlink(source.c_str()) != 0) return fail_errno("remove " + source);
  return tell_status(path, 0, fields, link);
}

}  // namespace caisson::guest
