// For a worker with root's rights that reads for somebody else: while it exists, files are looked
// up and opened with that user's ids, groups and no capability over files.
//
// What was opened meanwhile stays open afterwards. The ids are those that count for files alone
// (setfsuid), so that no other process may signal or trace the worker in between. A thread's own:
// the worker has one. Where the user is root, or nobody, it does nothing.
#pragma once

#include <sys/types.h>

#include <vector>

#include "base/error.h"
#include "guest/files.h"

namespace caisson::guest {

class FileReader {
 public:
  // Errors: permission_denied where the worker may not become that user.
  static Result<FileReader> become(const Owner& owner);
  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&&) = delete;
  // Ends the process where its own ids do not come back.
  ~FileReader();

 private:
  FileReader() = default;
  bool active_ = false;
  uid_t uid_ = 0;
  gid_t gid_ = 0;
  std::vector<gid_t> groups_;
};

}  // namespace caisson::guest
