// Folders and files that only the server's own user may read. No state, any thread.
#pragma once

#include <string>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::db {

// Opens the folder; makes it (0700, and what is above it 0755) where it is not there. Error:
// failed_precondition where others may write to it, and so put another file in a file's place.
Result<Fd> open_private_directory(const std::string& path);

// Makes the file of the folder, empty, where it is not there. It is 0600 afterwards; made by root
// it belongs to the folder's owner. Error: failed_precondition where it is a link or no file.
//
// No descriptor is handed out, and a file that is there is not opened: closing any descriptor of a
// file takes this process's locks on it away, those of an open database too.
Status ensure_private_file(int folder_fd, const std::string& name);

// Gives what root has just made to the folder's owner.
Status give_to_owner(int folder_fd, int file_fd);

}  // namespace caisson::db
