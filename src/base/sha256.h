// SHA-256 (FIPS 180-4), by which the store names what it keeps, and HMAC with it (RFC 2104). Our
// own because the programs that need it are small and static. No table is indexed and no branch
// taken by what is hashed, so that secrets may be. One thread an object.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace caisson {

class Sha256 {
 public:
  Sha256();
  void update(std::string_view bytes);
  // The digest of everything so far, as 64 lower-case hexadecimal digits. Call it once, at the end.
  std::string finish();
  // The same as its 32 bytes; one of the two, once.
  std::string finish_bytes();

 private:
  void block(const unsigned char* bytes);

  std::array<std::uint32_t, 8> state_;
  std::array<unsigned char, 64> pending_ = {};
  std::size_t pending_size_ = 0;
  std::uint64_t total_ = 0;
};

// Whether `text` is what finish() gives: 64 lower-case hexadecimal digits.
bool is_sha256(std::string_view text);

// HMAC-SHA-256 of `message` under `key`, as 32 bytes.
std::string hmac_sha256(std::string_view key, std::string_view message);

}  // namespace caisson
