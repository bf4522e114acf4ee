// Values of secrets that a command on the host makes, which may end (`source: {command: …}`): what
// such a command prints, when it is to run again, and the words between the process that runs it
// (minter_process.h) and the gateway. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/secret.h"
#include "base/time_text.h"

namespace caisson::egress {

struct Minted {
  SecretValue value;
  std::optional<WallTime> expires;  // nullopt: it does not end
};

// What a command printed: the value, perhaps with an end of line behind it, which holds for
// `ttl_ms` where there is one; or, where it begins with a brace, {"version":1,"value":"…"} with
// perhaps "expires_at" in RFC 3339's form, which goes before `ttl_ms`, and perhaps other keys.
// Error: invalid_argument, with nothing of the output in it.
Result<Minted> read_minted(std::string_view output, std::optional<std::uint64_t> ttl_ms,
                           WallTime now);

// When a value that was made at `now` is to be replaced: a minute before its end, and where it
// lives for less than ten minutes a tenth of that.
WallTime refresh_time(WallTime now, WallTime expires);

// One of a minter's words to a gateway.
struct MintedWord {
  // kValue: of the secret, from now on. kNone: it has none. kEnd: of all that there are.
  enum class Kind : char { kValue = 'v', kNone = 'n', kEnd = 'e' };
  Kind kind = Kind::kEnd;
  std::string secret;  // its name
  Minted minted;       // of kValue
};
inline constexpr std::size_t kMostMintedWord = 8 * 1024;
SecretBytes encode_minted(const MintedWord& word);
// Error: invalid_argument.
Result<MintedWord> decode_minted(std::string_view bytes);

}  // namespace caisson::egress
