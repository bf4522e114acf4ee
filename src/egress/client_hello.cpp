#include "egress/client_hello.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/guards.h"

namespace caisson::egress {
namespace {

constexpr std::size_t kRecordHeader = 5;
constexpr std::size_t kMostRecord = 16 * 1024;
constexpr std::size_t kMessageHeader = 4;
constexpr std::size_t kRandom = 32;
constexpr std::size_t kMostSession = 32;
constexpr std::size_t kMostName = 255;

// One packet, which some take for all of a hello.
constexpr std::size_t kShortHello = 1024;
std::size_t most_hello() {
  return guard_off(Guard::kHelloLength) ? kShortHello : kMostHello;
}

constexpr unsigned kHandshakeRecord = 22;
constexpr unsigned kClientHello = 1;
constexpr unsigned kHostName = 0;

constexpr std::uint16_t kServerName = 0;
constexpr std::uint16_t kProtocols = 16;
constexpr std::uint16_t kEarlyData = 42;
constexpr std::uint16_t kSupportedVersions = 43;
constexpr std::uint16_t kEncryptedServerName = 0xffce;
// encrypted_client_hello, from the first draft that had a number of its own to the standard.
constexpr std::uint16_t kFirstEncryptedHello = 0xfe08;
constexpr std::uint16_t kEncryptedHello = 0xfe0d;

// Of versions, extensions and, as two bytes, of protocols.
bool is_grease(std::uint16_t value) {
  return (value & 0x0f0f) == 0x0a0a && value >> 8 == (value & 0xff);
}

bool is_grease(std::string_view protocol) {
  return protocol.size() == 2 && protocol[0] == protocol[1] && (protocol[0] & 0x0f) == 0x0a;
}

bool hides_name(std::uint16_t extension) {
  return extension == kEncryptedServerName ||
         (extension >= kFirstEncryptedHello && extension <= kEncryptedHello);
}

// Takes numbers and byte strings off the front; once something does not fit, everything fails.
class Cursor {
 public:
  explicit Cursor(std::string_view bytes) : rest_(bytes) {}

  bool bytes(std::size_t count, std::string_view& out) {
    if (rest_.size() < count) return false;
    out = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return true;
  }
  bool number(std::size_t width, std::size_t& out) {
    std::string_view digits;
    if (!bytes(width, digits)) return false;
    out = 0;
    for (const char c : digits) out = out << 8 | static_cast<unsigned char>(c);
    return true;
  }
  bool number(std::uint16_t& out) {
    std::size_t wide = 0;
    if (!number(2, wide)) return false;
    out = static_cast<std::uint16_t>(wide);
    return true;
  }
  // A length of `width` bytes, and so many bytes.
  bool vector(std::size_t width, std::string_view& out) {
    std::size_t size = 0;
    return number(width, size) && bytes(size, out);
  }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

// The body of the message. Each step says whether it went well; the first that does not has said
// why.
class HelloParser {
 public:
  explicit HelloParser(std::string_view body) : body_(body) {}

  bool run(ClientHello& out) {
    std::string_view extensions;
    if (!fixed_part(extensions)) return false;
    if (!all_extensions(extensions, out)) return false;
    if (out.versions.empty()) out.versions.push_back(legacy_version_);
    return true;
  }
  std::string take_refusal() { return std::move(refusal_); }

 private:
  bool refuse(std::string why) {
    refusal_ = std::move(why);
    return false;
  }

  bool fixed_part(std::string_view& extensions) {
    std::string_view random, session, ciphers, compressions;
    if (!body_.number(legacy_version_) || !body_.bytes(kRandom, random) ||
        !body_.vector(1, session) || !body_.vector(2, ciphers) || !body_.vector(1, compressions))
      return refuse("the TLS hello ends too early");
    if (legacy_version_ >> 8 != 3) return refuse("the TLS hello is of no version that exists");
    if (session.size() > kMostSession)
      return refuse("the TLS hello's session has more than 32 bytes");
    if (ciphers.empty() || ciphers.size() % 2 != 0 || compressions.empty())
      return refuse("the TLS hello offers no cipher or no compression, or half a one");
    if (body_.done()) return true;
    if (!body_.vector(2, extensions) || !body_.done())
      return refuse("the TLS hello's extensions have another length than they say");
    return true;
  }

  bool all_extensions(std::string_view bytes, ClientHello& out) {
    std::vector<std::uint16_t> seen;
    for (Cursor rest(bytes); !rest.done();) {
      std::uint16_t type = 0;
      std::string_view body;
      if (!rest.number(type) || !rest.vector(2, body))
        return refuse("an extension of the TLS hello has another length than it says");
      seen.push_back(type);
      if (!extension(type, body, out)) return false;
    }
    std::sort(seen.begin(), seen.end());
    if (std::adjacent_find(seen.begin(), seen.end()) != seen.end())
      return refuse("the TLS hello has an extension twice");
    return true;
  }

  bool extension(std::uint16_t type, std::string_view body, ClientHello& out) {
    if (hides_name(type)) out.hides_name = !guard_off(Guard::kHelloEch);
    switch (type) {
      case kServerName:
        return server_name(body, out);
      case kProtocols:
        return protocols(body, out);
      case kSupportedVersions:
        return versions(body, out);
      case kEarlyData:
        out.early_data = true;
        return body.empty() || refuse("the TLS hello's wish for early data holds something");
      default:
        return true;
    }
  }

  bool server_name(std::string_view body, ClientHello& out) {
    std::string_view list, name;
    std::size_t type = 0;
    if (Cursor whole(body); !whole.vector(2, list) || !whole.done())
      return refuse("the TLS hello's list of server names has another length than it says");
    Cursor rest(list);
    if (!rest.number(1, type)) return refuse("the TLS hello's list of server names is empty");
    if (type != kHostName)
      return refuse("the TLS hello names a server by something else than a name");
    if (!rest.vector(2, name))
      return refuse("the TLS hello's server name has another length than it says");
    if (!rest.done()) return refuse("the TLS hello names more than one server");
    if (name.empty() || name.size() > kMostName)
      return refuse("the TLS hello's server name must have 1 to 255 bytes");
    if (name.find('\0') != std::string_view::npos)
      return refuse("the TLS hello's server name holds a NUL byte");
    out.server_name = std::string(name);
    return true;
  }

  bool protocols(std::string_view body, ClientHello& out) {
    std::string_view list;
    if (Cursor whole(body); !whole.vector(2, list) || !whole.done() || list.empty())
      return refuse("the TLS hello's list of protocols is empty or of another length than it says");
    for (Cursor rest(list); !rest.done();) {
      std::string_view protocol;
      if (!rest.vector(1, protocol) || protocol.empty())
        return refuse("a protocol of the TLS hello is empty or of another length than it says");
      if (out.protocols.size() == kMostProtocols)
        return refuse("the TLS hello offers more than 64 protocols");
      if (!is_grease(protocol)) out.protocols.emplace_back(protocol);
    }
    return true;
  }

  bool versions(std::string_view body, ClientHello& out) {
    std::string_view list;
    if (Cursor whole(body); !whole.vector(1, list) || !whole.done() || list.size() % 2 != 0)
      return refuse("the TLS hello's list of versions has another length than it says");
    for (Cursor rest(list); !rest.done();) {
      std::uint16_t version = 0;
      rest.number(version);
      if (!is_grease(version)) out.versions.push_back(version);
    }
    return !out.versions.empty() || refuse("the TLS hello's list of versions is empty");
  }

  Cursor body_;
  std::uint16_t legacy_version_ = 0;
  std::string refusal_;
};

}  // namespace

ClientHelloReader::State ClientHelloReader::feed(std::string_view bytes) {
  while (state_ == State::kNeedMore && !bytes.empty()) {
    std::size_t used = 1;
    if (payload_left_ > 0) {
      used = take_payload(bytes);
    } else {
      take_header(bytes.front());
    }
    bytes.remove_prefix(used);
  }
  return state_;
}

const ClientHello& ClientHelloReader::hello() const {
  VERIFY(state_ == State::kFound);
  return hello_;
}

void ClientHelloReader::refuse(std::string why) {
  state_ = State::kRefused;
  refusal_ = std::move(why);
  handshake_ = {};
}

void ClientHelloReader::take_header(char c) {
  header_ += c;
  ++taken_;
  if (taken_ == header_.size()) {
    // The connection's very first bytes.
    const TlsStart start = tls_start(header_);
    if (start == TlsStart::kOther) state_ = State::kNotTls;
    if (start == TlsStart::kSsl2) return refuse("the client speaks SSL 2, which nothing may use");
  }
  if (header_.size() == kRecordHeader && state_ == State::kNeedMore) begin_record();
}

void ClientHelloReader::begin_record() {
  const auto byte = [&](std::size_t at) {
    return std::size_t{static_cast<unsigned char>(header_[at])};
  };
  const std::size_t size = byte(3) << 8 | byte(4);
  if (byte(0) != kHandshakeRecord)
    return refuse("a record of another kind stands within the TLS hello");
  if (byte(1) != 3) return refuse("a record of the TLS hello is of no version that exists");
  if (size == 0 || size > kMostRecord)
    return refuse("a record of the TLS hello must have 1 to 16384 bytes");
  if (taken_ + size > most_hello()) return refuse("the TLS hello has more than 64 KiB");
  if (message_size_ > 0 && size > message_size_ - handshake_.size())
    return refuse("something stands behind the TLS hello in its record");
  payload_left_ = size;
  header_.clear();
}

std::size_t ClientHelloReader::take_payload(std::string_view bytes) {
  const std::size_t next = message_size_ > 0 ? message_size_ : kMessageHeader;
  const std::size_t count = std::min({bytes.size(), payload_left_, next - handshake_.size()});
  handshake_.append(bytes.substr(0, count));
  payload_left_ -= count;
  taken_ += count;
  if (handshake_.size() == kMessageHeader) begin_message();
  if (state_ == State::kNeedMore && handshake_.size() == message_size_) end_message();
  return count;
}

void ClientHelloReader::begin_message() {
  Cursor header(handshake_);
  std::size_t type = 0, size = 0;
  VERIFY(header.number(1, type) && header.number(3, size));
  if (type != kClientHello) return refuse("the client's first TLS message is no hello");
  if (taken_ + size > most_hello()) return refuse("the TLS hello has more than 64 KiB");
  if (payload_left_ > size) return refuse("something stands behind the TLS hello in its record");
  message_size_ = kMessageHeader + size;
}

void ClientHelloReader::end_message() {
  HelloParser parser(std::string_view(handshake_).substr(kMessageHeader));
  ClientHello hello;
  if (!parser.run(hello)) return refuse(parser.take_refusal());
  hello.bytes_used = taken_;
  hello_ = std::move(hello);
  handshake_ = {};
  state_ = State::kFound;
}

}  // namespace caisson::egress
