// Whether an address is this host's own, whatever range it lies in.
#pragma once

#include <cstdint>
#include <span>

namespace caisson::egress {

// `address`: 4 or 16 bytes in network order. Asks the kernel with a UDP socket, which sends nothing
// by being connected. Where no socket can be had the answer is yes. One thread, a few system calls.
bool is_own_address(std::span<const std::uint8_t> address);

}  // namespace caisson::egress
