// The variables that clients gave to their sandboxes, which may be secrets: a file each (0600), in
// the run directory, which is memory: they are never written to a disk and end with the host, as
// the sandboxes do. No state but the folder; one thread at a time for one sandbox.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::db {

// All names and values of one sandbox, as JSON.
inline constexpr std::size_t kMaxVariablesBytes = 1 << 20;

class Variables {
 public:
  using Map = std::map<std::string, std::string>;

  // RUN/served-env, made where it is not there. Errors: as of open_private_directory().
  static Result<Variables> open(const std::string& run_directory);

  // Error: invalid_argument (names or values that are not UTF-8, too many bytes).
  static Status check(const Map& variables);
  // In place of what there is. Errors: those of check(), invalid_argument (an id that is none).
  Status put(std::string_view sandbox_id, const Map& variables);
  // Empty where there are none.
  Result<Map> get(std::string_view sandbox_id);
  // Also where there are none.
  Status remove(std::string_view sandbox_id);
  // Removes those of all other sandboxes: for the server's start.
  Status keep_only(const std::vector<std::string>& sandbox_ids);

 private:
  explicit Variables(Fd folder) : folder_(std::move(folder)) {}
  Fd folder_;
};

}  // namespace caisson::db
