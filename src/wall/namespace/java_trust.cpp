#include "wall/namespace/java_trust.h"

#include <array>
#include <bit>
#include <cstdint>
#include <optional>

#include "base/encoding.h"

namespace caisson::wall {
namespace {

constexpr std::size_t kMostCertificates = 4096;
constexpr std::size_t kMostCertificate = 64 * 1024;
constexpr std::string_view kBegin = "-----BEGIN CERTIFICATE-----";
constexpr std::string_view kEnd = "-----END CERTIFICATE-----";
constexpr std::string_view kPassword = "changeit";
constexpr std::string_view kDigested = "Mighty Aphrodite";  // the form's own words
constexpr std::string_view kType = "X.509";

void put16(std::string& out, std::size_t value) {
  out += static_cast<char>(value >> 8);
  out += static_cast<char>(value);
}

void put32(std::string& out, std::size_t value) {
  put16(out, value >> 16 & 0xffff);
  put16(out, value & 0xffff);
}

void put_text(std::string& out, std::string_view text) {
  put16(out, text.size());
  out += text;
}

// SHA-1 (FIPS 180-4), which the form asks for and nothing here rests on.
std::string sha1(std::string text) {
  std::array<std::uint32_t, 5> state = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  const std::uint64_t bits = std::uint64_t{text.size()} * 8;
  text += '\x80';
  text.append((64 + 56 - text.size() % 64) % 64, '\0');
  put32(text, bits >> 32);
  put32(text, bits & 0xffffffff);
  std::array<std::uint32_t, 80> words;
  for (std::size_t at = 0; at < text.size(); at += 64) {
    for (std::size_t i = 0; i < 16; ++i) {
      words[i] = 0;
      for (std::size_t n = 0; n < 4; ++n)
        words[i] = words[i] << 8 | static_cast<unsigned char>(text[at + 4 * i + n]);
    }
    for (std::size_t i = 16; i < 80; ++i)
      words[i] = std::rotl(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
    auto [a, b, c, d, e] = state;
    for (std::size_t i = 0; i < 80; ++i) {
      std::uint32_t mixed = 0;
      if (i < 20) {
        mixed = ((b & c) | (~b & d)) + 0x5a827999;
      } else if (i < 40) {
        mixed = (b ^ c ^ d) + 0x6ed9eba1;
      } else if (i < 60) {
        mixed = ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
      } else {
        mixed = (b ^ c ^ d) + 0xca62c1d6;
      }
      const std::uint32_t next = std::rotl(a, 5) + mixed + e + words[i];
      e = d;
      d = c;
      c = std::rotl(b, 30);
      b = a;
      a = next;
    }
    state = {state[0] + a, state[1] + b, state[2] + c, state[3] + d, state[4] + e};
  }
  std::string digest;
  for (const std::uint32_t word : state) put32(digest, word);
  return digest;
}

// The next certificate, with `pem` behind it; nullopt: no more.
std::optional<std::string> next_certificate(std::string_view& pem) {
  for (;;) {
    const std::size_t begin = pem.find(kBegin);
    if (begin == std::string_view::npos) return std::nullopt;
    pem.remove_prefix(begin + kBegin.size());
    const std::size_t end = pem.find(kEnd);
    if (end == std::string_view::npos) return std::nullopt;
    std::string text;
    for (const char c : pem.substr(0, end)) {
      if (c != '\n' && c != '\r' && c != ' ' && c != '\t') text += c;
    }
    pem.remove_prefix(end + kEnd.size());
    auto bytes = base64_decode(text);
    // A sequence, as every certificate is.
    if (bytes && bytes->starts_with('\x30')) return bytes;
  }
}

}  // namespace

Result<std::string> java_trust_store(std::string_view pem) {
  std::string entries;
  std::size_t count = 0;
  while (const auto certificate = next_certificate(pem)) {
    if (certificate->size() > kMostCertificate)
      return fail(Error::invalid("a certificate of " + std::to_string(certificate->size()) +
                                 " bytes; allowed are 65536"));
    if (++count > kMostCertificates)
      return fail(Error::invalid("more than 4096 certificates; allowed are 4096"));
    put32(entries, 2);  // a certificate that is trusted
    put_text(entries, "authority-" + std::to_string(count));
    entries.append(8, '\0');  // when it was put in
    put_text(entries, kType);
    put32(entries, certificate->size());
    entries += *certificate;
  }
  std::string store("\xfe\xed\xfe\xed", 4);
  put32(store, 2);  // the form's version
  put32(store, count);
  store += entries;
  std::string digested;
  for (const char c : kPassword) {
    digested += '\0';
    digested += c;
  }
  digested += kDigested;
  return store + sha1(digested + store);
}

}  // namespace caisson::wall
