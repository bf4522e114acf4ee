// What a sandbox's guest says of files, taken for no more than bytes: an entry of a listing, an
// error, and which of its names and links may become something on this host. Whoever copies files
// out asks here first, and opens what is left beneath the folder that it copies to. Pure functions.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/error.h"
#include "base/proto.h"
#include "box/file_access.h"

namespace caisson::box {

// Directories below each other of what is copied.
inline constexpr std::size_t kMostDepth = 60;

// data_loss: what the guest said is not as the protocol has it.
Error broken_protocol(std::string_view what);
// Of an EVENT of kStat or kList; without a kName its name is empty. Error: data_loss.
Result<InsideEntry> inside_entry(const proto::FieldReader& fields);
// The error of a CLOSE; `what` is said where it gives no reason.
Error inside_error(const proto::FieldReader& fields, std::string_view what);

// Whether a link that lies `depth` directories below the copied tree's root stays in that tree.
bool link_stays_inside(std::string_view target, std::size_t depth);
// Whether `name` can be one directory entry on this host.
bool is_entry_name(std::string_view name);
// Whether `path` is one or more entry names joined by '/', at most kMostDepth.
bool is_relative_path(std::string_view path);

}  // namespace caisson::box
