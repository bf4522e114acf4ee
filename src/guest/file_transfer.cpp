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
#include "guest/file_place.h"
#include "guest/file_reader.h"
#include "guest/files.h"

namespace caisson::guest {
namespace {

using proto::Tag;

constexpr std::size_t kReadChunk = 32 * 1024;

// As any program of the user's opens it.
Result<Fd> open_to_read(const std::string& path) {
  TRY_ASSIGN(const Place place, Place::find(path, Place::Missing::kFail, {}));
  return place.open_regular(O_RDONLY);
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
  Owner owner;
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

// Beside `name`, which may be a whole path.
Result<std::string> temporary_name(const std::string& name) {
  std::uint64_t random = 0;
  if (::getrandom(&random, sizeof(random), 0) != sizeof(random)) return fail_errno("getrandom");
  constexpr char kDigits[] = "0123456789abcdef";
  std::string beside = name.substr(0, name.rfind('/') + 1) + ".caisson-";
  for (int i = 0; i < 16; ++i) beside += kDigits[(random >> (4 * i)) & 15];
  return beside;
}

// What is there at the place; nullopt: nothing.
Result<std::optional<struct stat>> status_at(const Place& place) {
  struct stat status{};
  if (::fstatat(place.directory(), place.name(), &status, place.stat_flags()) == 0) return status;
  if (errno == ENOENT) return std::nullopt;
  return fail_errno("stat " + place.path());
}

// Written by `fill` beside the file and renamed over it: a reader sees the old contents or the new.
// What is replaced hands down its mode.
Status replace_file(const Place& place, const WriteOptions& options,
                    const std::function<Status(int fd)>& fill) {
  const std::string& path = place.path();
  mode_t mode = options.mode.value_or(0644);
  TRY_ASSIGN(const auto old, status_at(place));
  if (old && !S_ISREG(old->st_mode))
    return fail(Error::precondition(path + " is not a regular file"));
  if (old) {
    TRY(place.check_existing(*old));
    TRY(place.check_removal(*old));  // since it will be
  }
  TRY(place.check_new());
  if (old && !options.mode) mode = old->st_mode & 0777;
  TRY_ASSIGN(const std::string temporary, temporary_name(place.name()));
  const auto write = [&]() -> Status {
    const Fd file(::openat(place.directory(), temporary.c_str(),
                           O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.valid()) return fail_errno("open " + path);
    TRY(fill(file.get()));
    TRY(set_attributes(file.get(), options, path));
    TRY(options.owner.give(file.get(), path));
    TRY(set_modified(file.get(), options, path));
    if (::fchmod(file.get(), mode) != 0) return fail_errno("chmod " + path);
    return place.take_name(place.directory(), temporary.c_str(),
                           options.exclusive ? Place::Existing::kKeep : Place::Existing::kReplace,
                           "rename to " + path);
  };
  Status status = write();
  if (!status) ::unlinkat(place.directory(), temporary.c_str(), 0);
  return status;
}

// A file that is there, to write to.
Result<Fd> open_existing(const Place& place, const WriteOptions& options, int flags) {
  TRY_ASSIGN(Fd file, place.open_regular(flags));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fail_errno("fstat " + place.path());
  TRY(place.check_existing(status));
  if (place.may_give(status)) TRY(options.owner.give(file.get(), place.path()));
  return file;
}

// Opens the file itself to write to, and gives it to its owner.
Result<Fd> open_in_place(const Place& place, const WriteOptions& options) {
  const int flags = O_WRONLY | (options.append ? O_APPEND : 0);
  const mode_t mode = options.mode.value_or(0644);
  if (!options.exclusive) {
    Result<Fd> file = open_existing(place, options, flags);
    if (file || file.error().error_number() != ENOENT) return file;
  }
  TRY(place.check_new());
  Result<Fd> file = place.open_regular(flags | O_CREAT | O_EXCL, mode);
  // A link to what is not there.
  if (!file && file.error().error_number() == EEXIST && !options.exclusive && !place.guarded())
    file = place.open_regular(flags | O_CREAT, mode);
  TRY_ASSIGN(Fd created, std::move(file));
  if (Status given = options.owner.give(created.get(), place.path()); !given) {
    ::unlinkat(place.directory(), place.name(), 0);
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

// A part of a composition, open from its check to its removal.
struct Source {
  Place place;
  Fd file;
  Identity identity;
};

// Regular files, all of them different, none the destination. Whose the composition will be could
// have read them.
Result<std::vector<Source>> sources_of(const proto::FieldReader& fields, const std::string& path,
                                       const Owner& owner) {
  std::vector<Source> sources;
  std::set<Identity> seen;
  struct stat status{};
  if (::stat(path.c_str(), &status) == 0) seen.insert({status.st_dev, status.st_ino});
  TRY_ASSIGN(const FileReader reader, FileReader::become(owner));
  for (const std::string_view field : fields.all(Tag::kSource)) {
    TRY_ASSIGN(const std::string source, checked_path(field));
    TRY_ASSIGN(Place place, Place::find(source, Place::Missing::kFail, owner));
    TRY_ASSIGN(Fd file, place.open_regular(O_RDONLY));
    if (::fstat(file.get(), &status) != 0) return fail_errno("fstat " + source);
    TRY(place.check_removal(status));  // since it will be
    const Identity identity{status.st_dev, status.st_ino};
    if (!seen.insert(identity).second || source == path)
      return fail(
          Error::invalid("compose " + path + ": " + source + " is the destination or given twice"));
    sources.push_back({std::move(place), std::move(file), identity});
  }
  if (sources.empty()) return fail(Error::invalid("compose " + path + ": no sources"));
  return sources;
}

// What somebody has put in its place meanwhile stays.
Status remove_source(const Source& source) {
  TRY_ASSIGN(const auto now, status_at(source.place));
  if (!now || Identity{now->st_dev, now->st_ino} != source.identity) return {};
  if (::unlinkat(source.place.directory(), source.place.name(), 0) != 0 && errno != ENOENT)
    return fail_errno("remove " + source.place.path());
  return {};
}

Status append_file(int to_fd, const std::string& path, const Source& source, WorkerLink& link) {
  char bytes[kReadChunk];
  for (;;) {
    // A worker that stays longer than this would be killed, and leave what it has made.
    if (link.given_up()) return fail(Error(Code::kCancelled, "given up by the peer"));
    const ssize_t count = ::read(source.file.get(), bytes, sizeof(bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno("read " + source.place.path());
    if (count == 0) return {};
    TRY(write_all(to_fd, {bytes, static_cast<std::size_t>(count)}, path));
  }
}

}  // namespace

Status read_file(const proto::FieldReader& fields, WorkerLink& link) {
  TRY_ASSIGN(const std::string path, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::uint64_t offset, number_field(fields, Tag::kOffset, 0));
  TRY_ASSIGN(std::uint64_t left, number_field(fields, Tag::kSize, UINT64_MAX));
  TRY_ASSIGN(const Fd file, open_to_read(path));
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
  const auto missing = options.parents ? Place::Missing::kMake : Place::Missing::kFail;
  TRY_ASSIGN(const Place place, Place::find(path, missing, options.owner));
  if (options.atomic)
    return replace_file(place, options, [&](int fd) { return take_input(fd, path, link); });

  TRY_ASSIGN(const Fd file, open_in_place(place, options));
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
  TRY_ASSIGN(const std::vector<Source> sources, sources_of(fields, path, options.owner));
  const auto missing = options.parents ? Place::Missing::kMake : Place::Missing::kFail;
  TRY_ASSIGN(const Place place, Place::find(path, missing, options.owner));
  TRY(replace_file(place, options, [&](int fd) -> Status {
    for (const Source& source : sources) TRY(append_file(fd, path, source, link));
    return {};
  }));
  for (const Source& source : sources) TRY(remove_source(source));
  return tell_status(path, 0, fields, link);
}

}  // namespace caisson::guest
