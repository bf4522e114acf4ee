// Who a command runs as: NAME, UID, and optionally :GROUP or :GID, looked up in the sandbox's own
// /etc/passwd and /etc/group.
//
// Both files are the image's or the command's, so hostile input: they are opened without following
// a link, must be regular, are read to a bound, and a line that is not well-formed counts as
// absent. Numeric ids need no entry. Used in the forked child alone. No state.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"

namespace caisson::guest {

struct Account {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // supplementary, of a user who has a name
  std::string name;           // empty: no entry
  std::string home = "/";
  std::string shell = "/bin/sh";
};

inline constexpr std::size_t kMaxAccountFile = 1024 * 1024;
inline constexpr std::size_t kMaxSupplementaryGroups = 64;

// The texts of both files, read when they are first needed.
struct AccountFiles {
  std::function<Result<std::string>()> passwd, group;
};

// `user` empty means uid 0. A numeric user without an entry and without a group has the group of
// the same number.
Result<Account> resolve_user(std::string_view user, const AccountFiles& files);
// The same, from /etc below `root_fd`.
Result<Account> resolve_user(std::string_view user, int root_fd);

// The names of all ids that have an entry; a file that cannot be read has none.
class AccountNames {
 public:
  static AccountNames read(const AccountFiles& files);
  // From /etc below `root_fd`.
  static AccountNames read(int root_fd);
  // Empty where there is no entry.
  std::string_view user(uid_t uid) const { return find(users_, uid); }
  std::string_view group(gid_t gid) const { return find(groups_, gid); }

 private:
  using Names = std::unordered_map<std::uint32_t, std::string>;
  static std::string_view find(const Names& names, std::uint32_t id) {
    const auto found = names.find(id);
    return found == names.end() ? std::string_view() : std::string_view(found->second);
  }

  Names users_, groups_;
};

}  // namespace caisson::guest
