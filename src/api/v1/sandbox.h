// What the handlers of /v1 share: the sandbox that a call names, and requests to it.
//
// A call acts in the sandbox as its user, with that user's rights and no others; `user` of the
// query or of the body names another one of the sandbox's own.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/call.h"
#include "api/e2b/request.h"
#include "base/proto.h"

namespace caisson::api::v1 {

// The sandbox of the path's first parameter. Error: not_found.
Result<std::shared_ptr<fleet::Served>> sandbox_of(const Call& call);
// One that can be worked in. Error: also failed_precondition, where it is paused.
Result<std::shared_ptr<fleet::Served>> running_sandbox_of(const Call& call);

// A request to its supervisor (fleet::BoxClient::request), by a connection of the moment.
io::Async<Result<std::vector<std::string>>> ask(std::shared_ptr<fleet::Served> sandbox,
                                                proto::ControlOperation operation);

// A whole number of the query. Error: invalid_argument.
Result<std::optional<std::int64_t>> query_number(const Call& call, std::string_view name,
                                                 std::int64_t least, std::int64_t most);
// "true" or "false" of the query; false where it is absent. Error: invalid_argument.
enum class Answered : std::uint8_t { kNo, kYes };
Result<Answered> query_truth(const Call& call, std::string_view name);

}  // namespace caisson::api::v1
