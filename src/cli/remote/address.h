// Where a server is, as a user writes it, and what of a request is written by hand. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace caisson::cli {

struct ServerAddress {
  enum class Scheme : unsigned char { kHttp, kHttps } scheme = Scheme::kHttp;
  std::string host;  // a name, or an address without brackets
  unsigned short port = 80;
  std::string authority;  // for the header Host: as it was written
};
// Its scheme (http or https), a host and perhaps a port, with a final slash at most. Error:
// invalid_argument.
Result<ServerAddress> parse_server_address(std::string_view url);

// Whether what is said to it stays on this host.
bool is_loopback(const ServerAddress& address);

// "/path?a=b&c=d", with the values escaped; those that are empty are left out.
std::string target_of(std::string_view path,
                      const std::vector<std::pair<std::string_view, std::string>>& query);

}  // namespace caisson::cli
