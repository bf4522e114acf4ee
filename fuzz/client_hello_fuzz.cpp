// libraries: egress policy base
// parser: src/egress/client_hello.cpp
//
// The reader of a TLS client's first flight: a connection's bytes.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "egress/client_hello.h"
#include "egress/first_bytes.h"

namespace {

using namespace caisson::egress;  // NOLINT: a program of one file

using State = ClientHelloReader::State;

std::size_t number(std::string_view bytes, std::size_t at, std::size_t width) {
  std::size_t value = 0;
  for (std::size_t i = 0; i < width; ++i)
    value = value * 256 + static_cast<unsigned char>(bytes.at(at + i));
  return value;
}

// The messages without the records' headers.
std::string payload_of(std::string_view bytes) {
  std::string payload;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t size = number(bytes, at + 3, 2);
    payload += bytes.substr(at + 5, size);
    at += 5 + size;
  }
  return payload;
}

// The server's name in a hello that is right, found without looking at anything else.
std::optional<std::string> name_in(std::string_view message) {
  std::size_t at = 4 + 2 + 32;
  at += 1 + number(message, at, 1);
  at += 2 + number(message, at, 2);
  at += 1 + number(message, at, 1);
  for (at += 2; at < message.size(); at += 4 + number(message, at + 2, 2)) {
    if (number(message, at, 2) == 0)
      return std::string(message.substr(at + 9, number(message, at + 7, 2)));
  }
  return std::nullopt;
}

std::string in_records(std::string_view message, std::size_t most) {
  std::string bytes;
  while (!message.empty()) {
    const std::size_t size = std::min(most, message.size());
    bytes.append("\x16\x03\x01", 3);
    bytes += static_cast<char>(size / 256);
    bytes += static_cast<char>(size % 256);
    bytes += message.substr(0, size);
    message.remove_prefix(size);
  }
  return bytes;
}

void check_same(const ClientHelloReader& a, const ClientHelloReader& b) {
  VERIFY(a.state() == b.state() && a.refusal() == b.refusal());
  if (a.state() == State::kFound) VERIFY(a.hello() == b.hello());
}

void check_found(std::string_view bytes, const ClientHello& hello) {
  VERIFY(hello.bytes_used <= bytes.size() && hello.bytes_used <= kMostHello);
  const std::string_view used = bytes.substr(0, hello.bytes_used);
  ClientHelloReader exact, early;
  VERIFY(exact.feed(used) == State::kFound && exact.hello() == hello);
  VERIFY(early.feed(used.substr(0, used.size() - 1)) == State::kNeedMore);

  VERIFY(!hello.versions.empty() && hello.protocols.size() <= kMostProtocols);
  const std::string message = payload_of(used);
  VERIFY(name_in(message) == hello.server_name);
  if (hello.server_name.has_value())
    VERIFY(!hello.server_name->empty() && hello.server_name->size() <= 255 &&
           hello.server_name->find('\0') == std::string::npos);

  // Cut into other records it says the same.
  for (const std::size_t most : {std::size_t{7}, std::size_t{16384}}) {
    const std::string other = in_records(message, most);
    if (other.size() > kMostHello) continue;
    ClientHelloReader reader;
    VERIFY(reader.feed(other) == State::kFound);
    ClientHello expected = hello;
    expected.bytes_used = other.size();
    VERIFY(reader.hello() == expected);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ClientHelloReader whole, bytewise, halves;
  whole.feed(bytes);
  for (const char& byte : bytes) bytewise.feed(std::string_view(&byte, 1));
  halves.feed(bytes.substr(0, size / 2));
  halves.feed(bytes.substr(size / 2));
  check_same(whole, bytewise);
  check_same(whole, halves);

  VERIFY((whole.state() == State::kRefused) == !whole.refusal().empty());
  VERIFY((whole.state() == State::kNotTls) == (tls_start(bytes) == TlsStart::kOther));
  if (whole.state() == State::kNeedMore) VERIFY(size <= kMostHello);
  if (whole.state() == State::kFound) check_found(bytes, whole.hello());
  return 0;
}
