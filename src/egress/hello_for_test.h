// Builds TLS hellos piece by piece, right ones and wrong ones, for the tests of what reads them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

namespace caisson::egress::for_test {

inline std::string number(std::size_t value, std::size_t width) {
  std::string bytes;
  for (std::size_t i = width; i-- > 0;) bytes += static_cast<char>(value >> (8 * i) & 0xff);
  return bytes;
}

// Its length in `width` bytes before it.
inline std::string vector(std::string_view content, std::size_t width) {
  return number(content.size(), width) + std::string(content);
}

inline std::string extension(unsigned type, std::string_view body) {
  return number(type, 2) + vector(body, 2);
}

inline std::string name_entry(std::string_view name, unsigned type = 0) {
  return number(type, 1) + vector(name, 2);
}

inline std::string server_name(std::string_view name) {
  return extension(0, vector(name_entry(name), 2));
}

// A message of the handshake: type, length, body.
inline std::string message(std::string_view body, unsigned type = 1) {
  return number(type, 1) + vector(body, 3);
}

// The body of a hello up to its extensions.
inline std::string fixed_part(unsigned version = 0x0303) {
  return number(version, 2) + std::string(32, 'r') + vector(std::string(32, 's'), 1) +
         vector("\x13\x01\xc0\x2b", 2) + vector(std::string(1, '\0'), 1);
}

inline std::string hello_message(std::string_view extensions) {
  return message(fixed_part() + vector(extensions, 2));
}

inline std::string record(std::string_view payload, unsigned type = 22) {
  return number(type, 1) + number(0x0301, 2) + vector(payload, 2);
}

// A message in as many records as it takes.
inline std::string records(std::string_view message, std::size_t most = 16384) {
  std::string bytes;
  for (; !message.empty(); message.remove_prefix(std::min(most, message.size())))
    bytes += record(message.substr(0, most));
  return bytes;
}

inline std::string hello(std::string_view extensions) {
  return records(hello_message(extensions));
}

}  // namespace caisson::egress::for_test
