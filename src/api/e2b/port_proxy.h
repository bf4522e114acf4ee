// Requests for the ports of programs inside a sandbox, passed through to them: HTTP/1.1, and after
// an upgrade (WebSocket) whatever both sides say.
//
// The program is reached as the sandbox itself reaches it, on 127.0.0.1 inside. What a client sends
// is taken apart and put together anew, so a program sees only requests of one meaning; what the
// program answers is hostile and read by the same strict rules. Each request is a connection of its
// own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/e2b/request.h"
#include "http/message.h"

namespace caisson::api::e2b {

// Whether the request shows the traffic token, where the sandbox asks for one; answers it where
// not.
io::Async<Result<Allowed>> check_traffic(const Request& request);
// For who may (check_traffic).
io::Async<void> serve_port(const Request& request, std::uint16_t port);

// The head as the program gets it. `mask_host`: in place of the client's Host where it is not
// empty, with "${PORT}" replaced. Pure.
struct ForwardedFrom {
  std::string_view peer;  // "127.0.0.1:5000"
  bool secure = false;
};
http::RequestHead forwarded_head(const http::RequestHead& head, std::uint16_t port,
                                 std::string_view mask_host, ForwardedFrom from);

}  // namespace caisson::api::e2b
