// One file operation each, in a worker process that has the user's rights and no others.
//
// Paths are absolute and mean what they mean to any program of that user inside. Results go out as
// EVENT frames; the returned Status becomes the CLOSE frame. Regular files alone are read and
// written: a fifo or a device is refused, never waited for.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/proto.h"
#include "guest/worker.h"

namespace caisson::guest {

// Whom what an operation creates or writes anew belongs to: the OPEN frame's kUid and kGid. Without
// them the worker's own ids, and what was there keeps its owner.
class Owner {
 public:
  Owner() = default;
  Owner(uid_t uid, gid_t gid) : uid_(uid), gid_(gid) {}
  static Result<Owner> wanted(const proto::FieldReader& fields);

  bool given() const { return uid_ != kUnchanged || gid_ != kUnchanged; }
  // Nobody's where it is not given.
  uid_t uid() const { return uid_; }
  gid_t gid() const { return gid_; }
  Status give(int fd, const std::string& path) const;

 private:
  static constexpr std::uint32_t kUnchanged = 0xffffffff;  // the kernel's word for it
  uid_t uid_ = kUnchanged;
  gid_t gid_ = kUnchanged;
};

struct DirectoryOptions {
  mode_t mode = 0755;
  bool parents = false;    // make them (0755), and take a directory that is there
  bool exclusive = false;  // with parents: not the last one
  Owner owner;             // of all that are made
};
Status make_directory(const std::string& path, const DirectoryOptions& options);
// Those above `path`.
Status make_parents(const std::string& path, const Owner& owner);

Status read_file(const proto::FieldReader& fields, WorkerLink& link);
Status write_file(const proto::FieldReader& fields, WorkerLink& link);
Status compose_file(const proto::FieldReader& fields, WorkerLink& link);
Status list_directory(const proto::FieldReader& fields, WorkerLink& link);
Status remove_path(const proto::FieldReader& fields);
Status rename_path(const proto::FieldReader& fields);
Status lookup_user(const proto::FieldReader& fields, WorkerLink& link);
// The EVENT of kStat for `path`; AT_SYMLINK_NOFOLLOW or 0.
Status tell_status(const std::string& path, int flags, const proto::FieldReader& fields,
                   WorkerLink& link);

// The value of kPath or kTarget: absolute, no zero byte, shorter than PATH_MAX.
Result<std::string> path_field(const proto::FieldReader& fields, proto::Tag tag);
Result<std::string> checked_path(std::string_view path);
// An optional number field, `fallback` where it is absent.
Result<std::uint64_t> number_field(const proto::FieldReader& fields, proto::Tag tag,
                                   std::uint64_t fallback);
// A path of something below `directory`.
std::string join(const std::string& directory, std::string_view name);
// By what statfs(2) says.
bool is_network_file_system(std::uint64_t type);
// The error of a directory that could not be opened: invalid_argument where something else is
// there.
Error directory_error(const std::string& what, const std::string& path, int error_number);

}  // namespace caisson::guest
