// Requests for the data plane that name no sandbox: found by the secret that they show.
//
// Clients that send everything to one host leave the sandbox's id out of signed file URLs, and old
// ones out of everything. A sandbox's token is long and random, so the token, or a signature made
// with it, is some sandbox's or nobody's.
#pragma once

#include <memory>

#include "fleet/fleet.h"
#include "http/server.h"

namespace caisson::api::e2b {

// The running sandbox whose token the request shows, or whose token its URL is signed with (expired
// or not: the data plane says so). nullptr: it shows neither, or nobody's, or its path is none of
// the data plane's.
std::shared_ptr<fleet::Served> find_by_secret(fleet::Fleet& fleet, const http::Exchange& exchange);

}  // namespace caisson::api::e2b
