// Which protocol a client speaks, told by its first bytes: the gateway's fork between TLS, HTTP and
// what only a rule for plain TCP may let through. Pure; nothing is kept.
//
// It only sorts. What is sorted as TLS or HTTP is then read by the parser of that protocol, which
// refuses what is malformed; so the error to avoid here is to call something opaque that a server
// would read as TLS or HTTP. A server that speaks first (SMTP, FTP, …) leaves no bytes to look at:
// its silence is the caller's to time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace caisson::egress {

// Whether bytes begin a TLS connection.
enum class TlsStart : std::uint8_t {
  kNeedMore,
  kRecord,  // a handshake record of TLS or SSL 3
  kSsl2,    // the hello of SSL 2, or a TLS hello in its clothes
  kOther,
};
TlsStart tls_start(std::string_view bytes);

enum class FirstBytes : std::uint8_t {
  kNeedMore,
  kTls,    // any form of it; client_hello.h says what of it is refused
  kHttp1,  // a method and a space
  kHttp2PriorKnowledge,
  kSsh,
  kOther,
};

// No more than so many bytes are ever looked at: whoever has them all never gets kNeedMore.
inline constexpr std::size_t kMostMethodBytes = 32;
inline constexpr std::size_t kMostFirstBytes = kMostMethodBytes + 1;

// `bytes`: all that has come so far, from the first byte on. Once it is not kNeedMore, the answer
// stays the same whatever follows.
FirstBytes first_bytes(std::string_view bytes);

}  // namespace caisson::egress
