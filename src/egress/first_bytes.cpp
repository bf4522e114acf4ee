#include "egress/first_bytes.h"

#include <algorithm>

namespace caisson::egress {
namespace {

constexpr std::string_view kSshStart = "SSH-";
// The first line of HTTP/2's preface; no request of HTTP/1 has this one.
constexpr std::string_view kHttp2Start = "PRI * HTTP/2.0\r\n";
static_assert(kHttp2Start.size() <= kMostFirstBytes);

constexpr unsigned char kHandshakeRecord = 22;
constexpr unsigned char kTlsMajor = 3;
constexpr unsigned char kSsl2Length = 0x80;  // a record of SSL 2 without padding
constexpr unsigned char kSsl2ClientHello = 1;
constexpr unsigned char kSsl2Minor = 2;  // version 0.2

bool is_token_character(char c) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kOthers.find(c) != std::string_view::npos;
}

// Both are as long as the shorter of them says.
bool agree(std::string_view a, std::string_view b) {
  const std::size_t common = std::min(a.size(), b.size());
  return a.substr(0, common) == b.substr(0, common);
}

FirstBytes text_protocol(std::string_view bytes) {
  for (const auto& [start, protocol] : {std::pair{kSshStart, FirstBytes::kSsh},
                                        std::pair{kHttp2Start, FirstBytes::kHttp2PriorKnowledge}}) {
    if (agree(bytes, start)) return bytes.size() < start.size() ? FirstBytes::kNeedMore : protocol;
  }
  const std::string_view looked_at = bytes.substr(0, kMostFirstBytes);
  const auto end = std::find_if_not(looked_at.begin(), looked_at.end(), is_token_character);
  if (end == looked_at.end())
    return looked_at.size() < kMostFirstBytes ? FirstBytes::kNeedMore : FirstBytes::kOther;
  return *end == ' ' && end != looked_at.begin() ? FirstBytes::kHttp1 : FirstBytes::kOther;
}

}  // namespace

TlsStart tls_start(std::string_view bytes) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(bytes[at]); };
  if (bytes.empty()) return TlsStart::kNeedMore;
  if (byte(0) == kHandshakeRecord) {
    if (bytes.size() < 2) return TlsStart::kNeedMore;
    return byte(1) == kTlsMajor ? TlsStart::kRecord : TlsStart::kOther;
  }
  // Length, type of the message, version: 0.2, or that of a TLS hello.
  if ((byte(0) & kSsl2Length) == 0) return TlsStart::kOther;
  if (bytes.size() > 2 && byte(2) != kSsl2ClientHello) return TlsStart::kOther;
  if (bytes.size() > 3 && byte(3) != 0 && byte(3) != kTlsMajor) return TlsStart::kOther;
  if (bytes.size() < 5) return TlsStart::kNeedMore;
  return byte(3) == kTlsMajor || byte(4) == kSsl2Minor ? TlsStart::kSsl2 : TlsStart::kOther;
}

FirstBytes first_bytes(std::string_view bytes) {
  switch (tls_start(bytes)) {
    case TlsStart::kNeedMore:
      return FirstBytes::kNeedMore;
    case TlsStart::kRecord:
    case TlsStart::kSsl2:
      return FirstBytes::kTls;
    case TlsStart::kOther:
      break;
  }
  return text_protocol(bytes);
}

}  // namespace caisson::egress
