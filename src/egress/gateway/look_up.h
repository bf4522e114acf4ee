// Names asked of this host's resolver (egress/resolver.h), on a thread of the pool.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/error.h"
#include "egress/dns_message.h"
#include "egress/resolver.h"
#include "io/loop.h"

namespace caisson::egress {

// So long a look-up takes at most, and as long again where others have all threads.
inline constexpr std::chrono::seconds kResolveTime{10};
inline constexpr std::size_t kMostAddresses = 16;
inline constexpr std::size_t kMostServices = 32;

// The first kMostAddresses that it has. Errors: not_found, unavailable, deadline_exceeded.
io::Async<Result<ResolvedName>> look_up(io::Loop& loop, std::string name);
// The first kMostServices of its SRV records. The same errors.
io::Async<Result<std::vector<DnsService>>> look_up_services(io::Loop& loop, std::string name);

}  // namespace caisson::egress
