// The few file operations that the store is made of: whole small files, written so that a crash
// leaves the old or the new one; locks; and the removal of a tree of any depth. Everything is
// relative to an open directory and follows no symbolic link.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"

namespace caisson::image {

// The whole file, which must be smaller than 1 MiB.
Result<std::string> read_small_file(const std::string& path);
Result<std::string> read_small_file_at(int directory_fd, const std::string& name);

// Writes a temporary file beside it, syncs it, renames it over `name`, and syncs the directory.
Status replace_file_at(int directory_fd, const std::string& name, std::string_view contents);

// Makes the directory (0700) where it is missing, and its parents; opens it.
Result<Fd> open_or_make_directory(const std::string& path);
Result<Fd> open_or_make_directory_at(int directory_fd, const std::string& name);
Result<Fd> open_directory_at(int directory_fd, const std::string& name);

// 32 hexadecimal digits that nobody has used: a name for what has none yet.
std::string random_name();

// The names in a directory but "." and "..", sorted.
Result<std::vector<std::string>> list_directory(int directory_fd);

enum class LockKind { kShared, kExclusive };
enum class LockWait { kWait, kTry };
// Opens `name` (made where it is missing) and locks it until the Fd is closed. With kTry, nullopt
// when somebody else has it. The file that is locked is the one that has the name afterwards, so a
// holder may unlink it.
Result<std::optional<Fd>> lock_file_at(int directory_fd, const std::string& name, LockKind kind,
                                       LockWait wait);

// Whether somebody holds the lock; not where it cannot be opened.
bool is_locked_at(int directory_fd, const std::string& name);

// For who writes a file in order and has it synced at last: has the disk begin with what was
// written since `begun`, where that is worth it, so that it works meanwhile. Up to where it has
// begun. Only a hint, so there is no error.
std::uint64_t begin_writing(int file_fd, std::uint64_t begun, std::uint64_t end);

// Removes `name`, whatever it is, with all that is below it. Its depth costs no memory or
// descriptors beyond a constant. Absent is success.
Status remove_tree_at(int directory_fd, const std::string& name);

}  // namespace caisson::image
