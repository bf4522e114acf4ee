// Messages of HTTP/2 (RFC 9113, section 8) as those of HTTP/1.1, and back, so that one code judges
// both.
//
// What a sandbox or a server sent in fields becomes a head that says the same in HTTP/1.1's words:
// :authority is its Host, :path its target, a body of unknown length is chunked, what stood in
// several fields of `cookie` is one header. Strict, whoever took the fields apart before: what two
// readers could understand in two ways is refused, and so is whatever is meant for one connection
// of HTTP/1.1 alone. Pure, bounded by its input; fuzzed (fuzz/h2_message_fuzz.cpp).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "http/message.h"

namespace caisson::egress {

// The fields of one header section, in their order, pseudo-headers (":path") among them.
using H2Fields = std::vector<std::pair<std::string, std::string>>;

// Whether a message ended with its head, or a body follows.
enum class H2Body : bool { kNone, kFollows };

// A request over TLS. Its first Host is :authority; where it came with a `host` that is spelled in
// another way, that is a second Host, for whoever judges to compare. Of CONNECT the target is
// :authority. Error: invalid, with the reason.
Result<http::RequestHead> request_of(const H2Fields& fields, H2Body body);
// Error: invalid; also for a status of 101, which HTTP/2 has not.
Result<http::ResponseHead> response_of(const H2Fields& fields);
// What follows a body. Error: invalid; also for what frames or directs a message and comes too
// late.
Result<http::Headers> trailers_of(const H2Fields& fields);

// The other way; what HTTP/2 has no place for (Connection, Transfer-Encoding, …) is left out. The
// request's Host becomes :authority.
H2Fields fields_of(const http::RequestHead& head);
H2Fields fields_of(const http::ResponseHead& head);
H2Fields fields_of(const http::Headers& trailers);

}  // namespace caisson::egress
