// The JSON half of wire.h, apart from it so that each form has a file. Pure.
#pragma once

#include "api/e2b/wire.h"

namespace caisson::api::e2b {

Result<json::Value> decode_json(const WireMessage& message, std::string_view text);
std::string encode_json(const WireMessage& message, const json::Value& value);

}  // namespace caisson::api::e2b
