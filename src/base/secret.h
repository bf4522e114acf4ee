// What nobody may guess: random bytes and names from the kernel, and the comparison of secrets. No
// state, any thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace caisson {

// From getrandom(2); a kernel that has none ends the program.
std::string random_bytes(std::size_t count);
// Lower-case hexadecimal digits, four random bits each.
std::string random_hex(std::size_t digits);
// Characters of [a-z0-9], all equally likely: ids that clients see. 20 of them hold 103 bits.
std::string random_id(std::size_t length);
// A version 4 UUID (RFC 9562) in its usual form.
std::string random_uuid();

// Whether both are the same, in a time that depends on their lengths alone.
bool same_secret(std::string_view a, std::string_view b);

}  // namespace caisson
