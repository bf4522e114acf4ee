// Which ports programs inside a sandbox listen on, from the text of /proc/net/tcp there. Pure; the
// text is the sandbox's, so it may be anything.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace caisson::api::v1 {

struct ListeningPort {
  std::uint16_t port = 0;
  std::string address;  // as an address is written: "127.0.0.1", "::"
  auto operator<=>(const ListeningPort&) const = default;
};

// Lines that are no listening socket's, or malformed, are left out; the first 1000 of the others.
std::vector<ListeningPort> listening_ports(std::string_view table);

}  // namespace caisson::api::v1
