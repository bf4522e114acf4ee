// The binary half of wire.h: proto3's encoding of the same tables. Pure.
#pragma once

#include "api/e2b/wire.h"

namespace caisson::api::e2b {

Result<json::Value> decode_binary(const WireMessage& message, std::string_view bytes);
std::string encode_binary(const WireMessage& message, const json::Value& value);

}  // namespace caisson::api::e2b
