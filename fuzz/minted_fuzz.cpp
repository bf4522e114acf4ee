// libraries: egress
// parser: src/egress/minted.cpp
//
// What a command printed, and the words of whoever ran it.
#include "egress/minted.h"

using namespace caisson;          // NOLINT: a program of one file
using namespace caisson::egress;  // NOLINT

extern "C" int LLVMFuzzerTestOneInput(const unsigned char* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const WallTime now = *parse_time("2026-01-02T03:04:05Z");
  for (const std::optional<std::uint64_t> ttl : {std::optional<std::uint64_t>(), {60'000}}) {
    const auto minted = read_minted(bytes, ttl, now);
    if (!minted.has_value()) {
      VERIFY(minted.error().message().starts_with("the command's output: "));
      continue;
    }
    VERIFY(!minted->value.bytes().empty() && minted->value.bytes().size() <= 4096);
    VERIFY(!ttl || minted->expires.has_value());
    if (minted->expires) {
      const WallTime again = refresh_time(now, *minted->expires);
      VERIFY(again >= now && again <= *minted->expires);
    }
  }
  const auto word = decode_minted(bytes);
  if (!word.has_value()) return 0;
  const SecretBytes written = encode_minted(*word);
  const auto again = decode_minted({written.data(), written.size()});
  VERIFY(again.has_value() && again->kind == word->kind && again->secret == word->secret);
  VERIFY(again->minted.value.bytes() == word->minted.value.bytes());
  VERIFY(again->minted.expires == word->minted.expires);
  return 0;
}
