// Files of a server that hold a few random bytes, which are its owner's alone. No state.
#pragma once

#include <cstddef>
#include <string>

#include "base/error.h"
#include "base/secret.h"

namespace caisson::db {

inline constexpr std::size_t kSecretFileBytes = 32;

// Reads the folder's file; makes it at random (0600) where it is not there, on the disk before this
// returns. Errors: failed_precondition (others may read it, or it has another length).
Result<SecretValue> open_secret_file(int folder_fd, const std::string& name);
// Error also: not_found.
Result<SecretValue> read_secret_file(int folder_fd, const std::string& name, std::size_t size);
// Makes it with these bytes, where it is not there.
Status make_secret_file(int folder_fd, const std::string& name, std::string_view bytes);

}  // namespace caisson::db
