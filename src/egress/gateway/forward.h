// A request of a sandbox from its head to its record: judged, passed on or answered. Only .cpp
// files of src/egress/gateway include this.
#pragma once

#include <memory>

#include "egress/gateway/h2_exchange.h"
#include "egress/gateway/request.h"
#include "http/server.h"

namespace caisson::egress {

// What a request comes on.
struct Incoming {
  http::Exchange& exchange;
  Carrier& carrier;
  H2Exchange* stream = nullptr;  // both of them, of HTTP/2
};

io::Async<void> handle_request(std::shared_ptr<Client> client, Incoming incoming);

}  // namespace caisson::egress
