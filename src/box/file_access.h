// Files of a sandbox as copying needs them, by whatever way they are reached: over the frames of
// its supervisor (box/file_client.h), or through a server.
//
// Calls may be sent without waiting for the one before; the first error is then returned by
// whatever comes next, settle() at the latest. What comes from inside is hostile: only types were
// checked.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/proto.h"

namespace caisson::box {

// What is known about one path inside. Hostile: only the type was checked.
struct InsideEntry {
  std::string name;  // of a listing: below the listed directory
  proto::FileType type = proto::FileType::kRegular;
  std::uint32_t mode = 0;      // permissions alone
  std::uint32_t all_mode = 0;  // set-id and sticky bits too
  std::uint32_t uid = 0, gid = 0;
  std::uint64_t size = 0;
  std::optional<std::uint64_t> modified;  // nanoseconds, base/file_time.h
  std::string target;                     // of a link
};

class FileAccess {
 public:
  // The next piece of a file that is being written; empty at its end.
  using Source = std::function<Result<std::string>()>;

  virtual ~FileAccess() = default;
  // As whom what follows is done.
  virtual void set_user(std::string user) = 0;
  // A link is looked at, not followed. nullopt: there is nothing of that name.
  virtual Result<std::optional<InsideEntry>> look(const std::string& path) = 0;
  // Everything below `path`, directories before what is in them.
  virtual Result<std::vector<InsideEntry>> list(const std::string& path,
                                                std::size_t most_entries) = 0;
  // The file's bytes, piece by piece. An error of `take` ends it.
  virtual Status read(const std::string& path,
                      const std::function<Status(std::string_view)>& take) = 0;
  // With the missing ones above it; no error where it is there.
  virtual Status make_directory(const std::string& path, std::uint32_t mode) = 0;
  virtual Status change_mode(const std::string& path, std::uint32_t mode) = 0;
  virtual Status symlink(const std::string& path, std::string_view target) = 0;
  // Of a directory that is filled. One that was there already may be somebody else's and then keeps
  // its time: no error.
  virtual Status set_modified(const std::string& path, std::uint64_t modified) = 0;
  // `modified` as in base/file_time.h.
  virtual Status write(const std::string& path, std::uint32_t mode, std::uint64_t modified,
                       const Source& source) = 0;
  // Waits until every request is answered.
  virtual Status settle() = 0;
};

}  // namespace caisson::box
