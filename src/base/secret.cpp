#include "base/secret.h"

#include <sys/random.h>

#include <cerrno>
#include <cstring>

#include "base/encoding.h"
#include "base/error.h"

namespace caisson {

std::string random_bytes(std::size_t count) {
  std::string bytes(count, '\0');
  std::size_t done = 0;
  while (done < count) {
    const ssize_t got = ::getrandom(bytes.data() + done, count - done, 0);
    if (got > 0) {
      done += static_cast<std::size_t>(got);
    } else {
      VERIFY(got < 0 && errno == EINTR);
    }
  }
  return bytes;
}

std::string random_hex(std::size_t digits) {
  std::string text = hex_encode(random_bytes((digits + 1) / 2));
  text.resize(digits);
  return text;
}

std::string random_id(std::size_t length) {
  constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz0123456789";
  // Bytes from here on would make the first letters likelier than the others.
  constexpr unsigned kEven = 256 / kAlphabet.size() * kAlphabet.size();
  std::string id;
  id.reserve(length);
  while (id.size() < length) {
    for (const char c : random_bytes(length - id.size())) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < kEven) id += kAlphabet[byte % kAlphabet.size()];
    }
  }
  return id;
}

std::string random_uuid() {
  std::string bytes = random_bytes(16);
  bytes[6] = static_cast<char>((bytes[6] & 0x0f) | 0x40);  // version 4
  bytes[8] = static_cast<char>((bytes[8] & 0x3f) | 0x80);  // RFC 9562's variant
  std::string text = hex_encode(bytes);
  for (const std::size_t at : {8, 13, 18, 23}) text.insert(at, 1, '-');
  return text;
}

bool same_secret(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  // volatile, so that no compiler ends the loop at the first difference.
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = static_cast<unsigned char>(difference | (a[i] ^ b[i]));
  }
  return difference == 0;
}

void wipe(void* memory, std::size_t size) {
  ::explicit_bzero(memory, size);
}

void wipe(std::string& text) {
  text.resize(text.capacity());
  wipe(text.data(), text.size());
  text.clear();
}

SecretValue SecretValue::take(std::string& bytes) {
  SecretValue value(bytes);
  wipe(bytes);
  return value;
}

SecretValue& SecretValue::operator=(SecretValue&& other) noexcept {
  bytes_.swap(other.bytes_);
  // Now, and not when the other is destroyed.
  SecretBytes().swap(other.bytes_);
  return *this;
}

}  // namespace caisson
