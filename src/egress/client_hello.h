// Reads a TLS client's first flight without answering it: which server it names, which protocols it
// offers, and whether it hides the name. The gateway decides by it before a byte goes anywhere, and
// passes the same bytes on where a rule says `splice`. Guards the wall: pure, bounded, fuzzed
// (fuzz/client_hello_fuzz.cpp).
//
// The hello may be split anywhere, over segments and over records, and the name may stand at its
// end (post-quantum key shares make hellos of several segments). What two readers could understand
// in two ways is refused: two names, a length that does not fit, an extension twice, anything
// behind the hello in its last record. Values that are reserved to be ignored (GREASE, RFC 8701)
// are ignored.
//
// The name comes out raw. Whether it is a name at all, and which one, is policy's to say.
//
// One object a connection, owned by whoever reads it; it keeps the handshake's bytes (at most 64
// KiB) until the answer is known, and what was found afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "egress/first_bytes.h"

namespace caisson::egress {

// Of the connection's bytes, with the headers of the records.
inline constexpr std::size_t kMostHello = 64 * 1024;
inline constexpr std::size_t kMostProtocols = 64;

struct ClientHello {
  // As the client spelled it: 1 to 255 bytes without NUL. May be an address, or no name at all.
  std::optional<std::string> server_name;
  // Of ALPN, in the client's order, without GREASE; each 1 to 255 bytes of any value.
  std::vector<std::string> protocols;
  // In the client's order, without GREASE: 0x0304 is TLS 1.3. A hello that has no list of versions
  // offers all up to the one it has here.
  std::vector<std::uint16_t> versions;
  // The true name may be hidden: encrypted_client_hello, its drafts, or encrypted_server_name. The
  // same extension is what clients send as GREASE; nobody but the server can tell which it is.
  bool hides_name = false;
  // It wants to send data before the server has answered.
  bool early_data = false;
  // What the hello takes of the connection's bytes. More may follow (early data).
  std::size_t bytes_used = 0;

  bool operator==(const ClientHello&) const = default;
};

class ClientHelloReader {
 public:
  enum class State : std::uint8_t { kNeedMore, kNotTls, kRefused, kFound };

  // The next bytes of the connection. Once the state is not kNeedMore it stays, and bytes are
  // ignored. How the bytes are split makes no difference.
  State feed(std::string_view bytes);

  State state() const { return state_; }
  // In state kFound.
  const ClientHello& hello() const;
  // Why it is refused, a sentence; empty in other states.
  const std::string& refusal() const { return refusal_; }

 private:
  void take_header(char c);
  void begin_record();
  std::size_t take_payload(std::string_view bytes);
  void begin_message();
  void end_message();
  void refuse(std::string why);

  State state_ = State::kNeedMore;
  std::string header_;            // of the record, as far as it has come
  std::size_t payload_left_ = 0;  // of the record
  std::size_t taken_ = 0;         // of the connection's bytes
  std::string handshake_;         // the message with its header
  std::size_t message_size_ = 0;  // with its header; 0 until that is there
  ClientHello hello_;
  std::string refusal_;
};

}  // namespace caisson::egress
