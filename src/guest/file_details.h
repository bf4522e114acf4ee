// What a stat, a listing or a watch tells of a file beyond its inode: names of its owners, where a
// link leads, extended attributes.
//
// Everything is found out with the worker's own rights, and what it may not see is left out: an
// entry without an attribute is no error. Bounded: kMaxAttributes attributes of kMaxAttributeBytes
// in sum. Used in the worker alone; one thread.
#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/proto.h"
#include "guest/users.h"

namespace caisson::guest {

inline constexpr std::size_t kMaxAttributes = 64;
inline constexpr std::size_t kMaxAttributeBytes = 8 * 1024;  // names and values

// Adds type, mode, owner, size, times, inode and link count.
void put_status(proto::Fields& fields, const struct stat& status);

// A file: `name` in the directory `directory_fd`, or AT_FDCWD and the path. `path` is absolute.
struct FileName {
  int directory_fd;
  const std::string& name;
  const std::string& path;
};

// What the OPEN frame asks for: kWantDetails and kXattrPrefix.
class Details {
 public:
  static Result<Details> wanted(const proto::FieldReader& fields);

  bool any() const { return names_.has_value(); }
  // Adds what was asked for; `status` is the file's own, a link's where it is one.
  void put(proto::Fields& fields, const FileName& file, const struct stat& status);

 private:
  void put_link(proto::Fields& fields, const std::string& path) const;
  void put_attributes(proto::Fields& fields, const FileName& file);

  std::optional<AccountNames> names_;
  std::string prefix_;  // empty: no attributes
  std::string list_;    // buffer
};

// Adds the names of both owners, where they have entries.
void put_owner_names(proto::Fields& fields, const struct stat& status, const AccountNames& names);

// The value of kXattrName or kXattrPrefix: begins with "user.", at most 255 bytes.
Result<std::string> attribute_name(const proto::FieldReader& fields, proto::Tag tag);

// All attributes of a file whose names begin with `prefix`, as they shall be.
struct Attributes {
  std::string prefix;
  std::vector<std::pair<std::string, std::string>> values;

  // From kXattrPrefix and pairs of kXattrName and kXattrValue; nullopt without a prefix.
  static Result<std::optional<Attributes>> wanted(const proto::FieldReader& fields);
  // Removes those that are not among the values, and sets the others.
  Status apply(int fd, const std::string& path) const;
};

}  // namespace caisson::guest
