// Making a sandbox for a client that may leave meanwhile.
#pragma once

#include <memory>

#include "api/call.h"

namespace caisson::api {

// As Fleet::create(), for the call's team. Where the client has gone by then nobody knows the
// sandbox's id, so it is ended. Error then: unavailable.
io::Async<Result<std::shared_ptr<fleet::Served>>> create_sandbox(Call& call,
                                                                 fleet::NewSandbox wanted);

}  // namespace caisson::api
