// Whether an address is this host's own, whatever range it lies in.
#pragma once

#include "policy/ip_address.h"

namespace caisson::egress {

// Asks the kernel with a UDP socket, which sends nothing by being connected. Where no socket can be
// had the answer is yes. One thread, a few system calls.
bool is_own_address(const policy::IpAddress& address);

}  // namespace caisson::egress
