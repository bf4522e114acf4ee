// The rows of the data plane's tables of RPC methods: what a service's file gives and envd.cpp
// looks up.
#pragma once

#include <span>
#include <string_view>

#include "api/e2b/rpc.h"

namespace caisson::api::e2b {

struct UnaryMethod {
  std::string_view path;  // "/process.Process/List"
  const WireMessage& request;
  const WireMessage& response;
  io::Async<Result<json::Value>> (*handler)(const Request& request, const json::Value& message);
};

// What the handler returns is how the stream ends.
struct StreamMethod {
  std::string_view path;
  const WireMessage& request;
  const WireMessage& response;
  io::Async<Status> (*handler)(const Request& request, const json::Value& message,
                               RpcAnswer& answer);
};

// process.Process/StreamInput, the one call that takes a stream; returns when it has ended.
io::Async<Status> stream_input(const Request& request, Encoding encoding);

std::span<const UnaryMethod> process_methods();
std::span<const StreamMethod> process_streams();
std::span<const UnaryMethod> filesystem_methods();
std::span<const StreamMethod> filesystem_streams();
std::span<const UnaryMethod> watcher_methods();

}  // namespace caisson::api::e2b
