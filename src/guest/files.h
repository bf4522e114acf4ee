// One file operation each, in a worker process that has the user's rights and no others.
//
// Paths are absolute and mean what they mean to any program of that user inside. Results go out as
// EVENT frames; the returned Status becomes the CLOSE frame. Regular files alone are read and
// written: a fifo or a device is refused, never waited for.
#pragma once

#include <sys/stat.h>

#include <string>

#include "base/error.h"
#include "base/fd.h"
#include "base/proto.h"
#include "guest/worker.h"

namespace caisson::guest {

Status read_file(const proto::FieldReader& fields, WorkerLink& link);
Status write_file(const proto::FieldReader& fields, WorkerLink& link);
Status list_directory(const proto::FieldReader& fields, WorkerLink& link);
Status remove_path(const proto::FieldReader& fields);
Status make_directory(const std::string& path, std::uint32_t mode, bool parents);

// The value of kPath or kTarget: absolute, no zero byte, shorter than PATH_MAX.
Result<std::string> path_field(const proto::FieldReader& fields, proto::Tag tag);
// An optional number field, `fallback` where it is absent.
Result<std::uint64_t> number_field(const proto::FieldReader& fields, proto::Tag tag,
                                   std::uint64_t fallback);
// Adds type, mode, owner, size, times, inode and link count.
void put_status(proto::Fields& fields, const struct stat& status);

}  // namespace caisson::guest
