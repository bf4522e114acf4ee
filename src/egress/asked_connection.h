// What a program says to a proxy that it was told of: where it wants a connection to, by CONNECT or
// a target with a host (RFC 9110), or by SOCKS5 (RFC 1928). Pure and bounded; fuzzed.
//
// Everything that leaves comes to the gateway anyway, so this gives nobody a way that he had not:
// who asks here is served as if he had connected to that name or address himself.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "egress/allow_list.h"

namespace caisson::egress {

struct AskedConnection {
  // kMore: more bytes decide. kGreeted: of SOCKS5, whose request comes next (socks_request()).
  enum class State : unsigned char { kMore, kGreeted, kAsked, kRefused };
  State state = State::kMore;
  Destination to;        // of kAsked
  std::size_t used = 0;  // how many of the bytes were looked at, and are to be no more
  std::string answer;    // to be sent before anything else; perhaps empty
  std::string instead;   // what is read from here on in place of the bytes that were used
  std::string sentence;  // of kRefused
};

// `bytes`: all that has come, from the first one on.
AskedConnection asked_connection(std::string_view bytes);
// The same of what comes behind the greeting of SOCKS5.
AskedConnection socks_request(std::string_view bytes);

}  // namespace caisson::egress
