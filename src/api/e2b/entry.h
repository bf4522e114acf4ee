// What the guest tells of a file as the data plane's EntryInfo. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/proto.h"

namespace caisson::api::e2b {

// Where clients' own attributes of files are kept.
inline constexpr std::string_view kMetadataPrefix = "user.e2b.";

// Asks of an OPEN for all that entry_info() needs.
void want_details(proto::Fields& fields);

// EntryInfo (messages.h) of an EVENT with details. Error: the guest told too little.
Result<json::Value> entry_info(const proto::FieldReader& event, std::string_view path);

// The mode as clients know it: "-rw-r--r--", "drwxr-xr-x", "Lrwxrwxrwx", "dtrwxrwxrwx".
std::string permissions(proto::FileType type, std::uint32_t mode);

// The clients' attributes of an EVENT; an object, empty where there are none.
json::Value metadata_of(const proto::FieldReader& event);

}  // namespace caisson::api::e2b
