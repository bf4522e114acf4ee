// The numbers behind a user's name, as an image's own /etc/passwd and /etc/group give them.
//
// The front end needs them before anything runs, since granted files are mapped to the command's
// user. The files are an image's and so hostile: bounded, and a malformed line counts as absent.
// The guest looks the name up again when the command starts and refuses one that does not exist.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "caisson/error.h"

namespace caisson::box {

struct Account {
  std::uint32_t uid = 1000, gid = 1000;
  // What to ask the guest for: `user` as given, or the default's name.
  std::string user = "1000";
  // The name that the image does not know, "user NAME" or "group NAME"; empty: all is known.
  std::string unknown;
};

// `user` as in a spec: empty (the image's default: 1000 where it has such a user, else 0), NAME,
// UID[:GID] or NAME:GROUP. `image_root_fds` are the image's root directories, the uppermost first;
// none is the host image, whose users are root and user. An unknown name is taken for 1000:1000,
// and told. Error: resource_exhausted where a file that a name is looked for in is longer than
// 1 MiB or lies behind too many links (image/stacked_files.h); who is a number needs none.
Result<Account> find_account(std::span<const int> image_root_fds, const std::string& user);

// The pure part.
Account find_account_in(std::string_view passwd, std::string_view group, std::string_view user);

}  // namespace caisson::box
