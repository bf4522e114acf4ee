// One request on its way through a handler, and the rows of the table that handlers stand in.
//
// A resource is a file with handlers and a function that gives its routes; Service (api/service.h)
// puts all of them into one Router. What a handler returns, an Answer or an Error, Service sends.
#pragma once

#include <caisson/network.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer.h"
#include "api/secrets.h"
#include "api/snapshots.h"
#include "api/templates.h"
#include "fleet/fleet.h"
#include "http/server.h"

namespace caisson::api {

// What sandboxes can reach here.
struct Egress {
  bool exists = false;  // they have gateways
  // Of E2B's clients that say nothing about it.
  policy::NetworkDefault usual = policy::NetworkDefault::kAllowPublic;
};

// What handlers work on; it outlives every request.
struct Backend {
  io::Loop& loop;
  fleet::Fleet& fleet;
  Templates& templates;
  Snapshots& snapshots;
  Secrets& secrets;
  // Under which clients reach ports, as "PORT-ID.DOMAIN"; may hold a port. Empty: they cannot.
  std::string domain;
  Egress egress = {};
};

struct Call {
  http::Exchange& exchange;
  const Backend& backend;
  std::string team;                     // of the API key
  std::vector<std::string> parameters;  // of the path

  const std::string& parameter(std::size_t index) const { return parameters.at(index); }
  std::optional<std::string_view> query(std::string_view name) const {
    return exchange.target().query_value(name);
  }
};

// The Call outlives the coroutine.
using Handler = io::Async<Result<Answer>> (*)(Call& call);

struct Route {
  std::string_view method, pattern;
  Handler handler;
  // kOwn: the handler asks for a right of its own; the call has no team.
  enum class Right : std::uint8_t { kKey, kOwn } right = Right::kKey;
};

}  // namespace caisson::api
