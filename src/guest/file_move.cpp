// Moving a file or a directory to another name.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "guest/file_place.h"
#include "guest/files.h"

namespace caisson::guest {
namespace {

using proto::Tag;

// Whether whoever planted links on the way to `place` could take away what is there.
Status check_source(const Place& place, const Place& target, const struct stat& status) {
  TRY(place.check_removal(status));
  if (!S_ISDIR(status.st_mode)) return {};
  struct stat from{}, to{};
  if (::fstat(place.directory(), &from) != 0 || ::fstat(target.directory(), &to) != 0)
    return fail_errno("rename " + place.path());
  // A directory that gets another parent is itself written to.
  const bool moves = from.st_dev != to.st_dev || from.st_ino != to.st_ino;
  return moves ? place.check_existing(status) : Status();
}

}  // namespace

Status rename_path(const proto::FieldReader& fields) {
  TRY_ASSIGN(const std::string from, path_field(fields, Tag::kPath));
  TRY_ASSIGN(const std::string to, path_field(fields, Tag::kTarget));
  TRY_ASSIGN(const std::uint64_t exclusive, number_field(fields, Tag::kExclusive, 0));
  TRY_ASSIGN(const std::uint64_t parents, number_field(fields, Tag::kRecursive, 0));
  TRY_ASSIGN(const Owner owner, Owner::wanted(fields));
  TRY_ASSIGN(const Place source,
             Place::find(from, Place::Missing::kFail, owner, Place::Last::kKeep));
  // Nothing is made for what is not there.
  struct stat status{};
  if (::fstatat(source.directory(), source.name(), &status, AT_SYMLINK_NOFOLLOW) != 0)
    return fail_errno("rename " + from);
  // A directory may be moved to a name with a slash at its end.
  std::string name = to;
  while (S_ISDIR(status.st_mode) && name.size() > 1 && name.ends_with('/')) name.pop_back();
  const auto missing = parents != 0 ? Place::Missing::kMake : Place::Missing::kFail;
  TRY_ASSIGN(const Place target, Place::find(name, missing, owner, Place::Last::kKeep));
  if (source.guarded()) {
    TRY(check_source(source, target, status));
    TRY(target.check_new());
  }
  return target.take_name(source.directory(), source.name(),
                          exclusive != 0 ? Place::Existing::kKeep : Place::Existing::kReplace,
                          "rename " + from + " to " + to);
}

}  // namespace caisson::guest
