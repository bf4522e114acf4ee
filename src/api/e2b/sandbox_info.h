// What the data plane tells of a sandbox itself: its variables, what it uses, that it is not there.
#pragma once

#include <string_view>

#include "api/e2b/request.h"

namespace caisson::api::e2b {

// GET /envs: {"NAME":"VALUE"}
io::Async<Status> answer_variables(const Request& request);
// GET /metrics: one sample. The processor's share is that of the fleet's last sample.
io::Async<Status> answer_metrics(fleet::Fleet& fleet, const Request& request);
// 502, by which clients know that a sandbox has ended or is paused.
io::Async<Status> answer_no_sandbox(http::Exchange& exchange, std::string_view id);

// The guest's counters as clients know them. Pure.
json::Value metrics_of(const std::vector<std::string>& events, double cpu_percent,
                       std::int64_t now);

}  // namespace caisson::api::e2b
