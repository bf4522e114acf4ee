#include "wall/namespace/java_trust.h"

#include <endian.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
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
class Sha1 {
 public:
  void add(std::string_view bytes) {
    total_ += bytes.size();
    if (!rest_.empty()) {
      const std::string_view more = bytes.substr(0, kBlock - rest_.size());
      rest_ += more;
      bytes.remove_prefix(more.size());
      if (rest_.size() < kBlock) return;
      take(rest_.data());
      rest_.clear();
    }
    for (; bytes.size() >= kBlock; bytes.remove_prefix(kBlock)) take(bytes.data());
    rest_ = bytes;
  }

  std::string finish() {
    const std::uint64_t bits = std::uint64_t{total_} * 8;
    std::string end = "\x80";
    end.append((2 * kBlock - 9 - total_ % kBlock) % kBlock, '\0');
    put32(end, bits >> 32);
    put32(end, bits & 0xffffffff);
    add(end);
    std::string digest;
    for (const std::uint32_t word : state_) put32(digest, word);
    return digest;
  }

 private:
  static constexpr std::size_t kBlock = 64;

  template <typename Mix>
  void rounds(std::uint32_t (&v)[5], const std::uint32_t* words, std::uint32_t constant, Mix mix) {
    for (std::size_t i = 0; i < 20; ++i) {
      const std::uint32_t next =
          std::rotl(v[0], 5) + mix(v[1], v[2], v[3]) + v[4] + constant + words[i];
      v[4] = v[3];
      v[3] = v[2];
      v[2] = std::rotl(v[1], 30);
      v[1] = v[0];
      v[0] = next;
    }
  }

  void take(const char* block) {
    std::uint32_t words[80];
    for (std::size_t i = 0; i < 16; ++i) {
      std::uint32_t word = 0;
      std::memcpy(&word, block + 4 * i, sizeof word);
      words[i] = be32toh(word);
    }
    for (std::size_t i = 16; i < 80; ++i)
      words[i] = std::rotl(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
    std::uint32_t v[5] = {state_[0], state_[1], state_[2], state_[3], state_[4]};
    const auto choose = [](auto b, auto c, auto d) { return (b & c) | (~b & d); };
    const auto parity = [](auto b, auto c, auto d) { return b ^ c ^ d; };
    const auto majority = [](auto b, auto c, auto d) { return (b & c) | (b & d) | (c & d); };
    rounds(v, words, 0x5a827999, choose);
    rounds(v, words + 20, 0x6ed9eba1, parity);
    rounds(v, words + 40, 0x8f1bbcdc, majority);
    rounds(v, words + 60, 0xca62c1d6, parity);
    for (std::size_t i = 0; i < 5; ++i) state_[i] += v[i];
  }

  std::array<std::uint32_t, 5> state_ = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476,
                                         0xc3d2e1f0};
  std::size_t total_ = 0;
  std::string rest_;
};

// The next certificate, with `pem` behind it; nullopt: no more.
std::optional<std::string> next_certificate(std::string_view& pem) {
  for (;;) {
    const std::size_t begin = pem.find(kBegin);
    if (begin == std::string_view::npos) return std::nullopt;
    pem.remove_prefix(begin + kBegin.size());
    const std::size_t end = pem.find(kEnd);
    if (end == std::string_view::npos) return std::nullopt;
    std::string text;
    text.reserve(end);
    for (std::string_view body = pem.substr(0, end); !body.empty();) {
      const std::size_t line = std::min(body.find('\n'), body.size());
      text += body.substr(0, line);
      body.remove_prefix(std::min(line + 1, body.size()));
    }
    pem.remove_prefix(end + kEnd.size());
    auto bytes = base64_decode(text);
    if (!bytes) {
      std::erase_if(text, [](char c) { return c == '\r' || c == ' ' || c == '\t'; });
      bytes = base64_decode(text);
    }
    // A sequence, as every certificate is.
    if (bytes && bytes->starts_with('\x30')) return bytes;
  }
}

}  // namespace

Result<std::string> java_trust_store(std::string_view pem) {
  std::string entries;
  entries.reserve(pem.size());
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
  Sha1 digest;
  digest.add(digested);
  digest.add(store);
  return store + digest.finish();
}

}  // namespace caisson::wall
