#include "egress/minted.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/json.h"

namespace caisson::egress {
namespace {

using std::chrono::milliseconds;

constexpr std::chrono::seconds kEarly{60};
constexpr int kPartOfLife = 10;
constexpr std::size_t kMostName = 64;
constexpr std::size_t kMostValue = 4096;

Error no_value(std::string_view why) {
  return Error::invalid("the command's output: found " + std::string(why) +
                        R"(; allowed is the value, or {"version":1,"value":"…","expires_at":)"
                        R"("2026-01-02T03:04:05Z"})");
}

Result<Minted> read_document(std::string_view output) {
  auto document = json::parse(output);
  if (!document.has_value()) return fail(no_value("a brace, and no JSON"));
  const json::Value* const version = document->find("version");
  if (version == nullptr || version->as_integer() == nullptr || *version->as_integer() != 1)
    return fail(no_value("JSON without \"version\":1"));
  const json::Value* const value = document->find("value");
  if (value == nullptr || value->as_string() == nullptr)
    return fail(no_value("JSON without a text as \"value\""));
  Minted minted{.value = SecretValue(*value->as_string())};
  if (const json::Value* const expires = document->find("expires_at"); expires != nullptr) {
    if (expires->as_string() != nullptr) minted.expires = parse_time(*expires->as_string());
    if (!minted.expires) return fail(no_value("an \"expires_at\" that is no time of RFC 3339"));
  }
  // The document is ours, and ends here.
  wipe(const_cast<std::string&>(*value->as_string()));
  return minted;
}

std::string_view without_line_end(std::string_view text) {
  if (text.ends_with('\n')) text.remove_suffix(1);
  if (text.ends_with('\r')) text.remove_suffix(1);
  return text;
}

std::int64_t to_ms(WallTime time) {
  return std::chrono::duration_cast<milliseconds>(time.time_since_epoch()).count();
}

}  // namespace

Result<Minted> read_minted(std::string_view output, std::optional<std::uint64_t> ttl_ms,
                           WallTime now) {
  Minted minted;
  if (output.starts_with('{')) {
    TRY_ASSIGN(minted, read_document(output));
  } else {
    minted.value = SecretValue(without_line_end(output));
  }
  if (minted.value.bytes().empty()) return fail(no_value("nothing"));
  if (minted.value.bytes().size() > kMostValue)
    return fail(no_value("a value of more than 4096 bytes"));
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
  if (std::ranges::any_of(minted.value.bytes(), is_control))
    return fail(no_value("a value with a line break or another control character"));
  if (!minted.expires && ttl_ms) minted.expires = now + milliseconds(*ttl_ms);
  if (minted.expires && *minted.expires <= now)
    return fail(no_value("a value whose time is over already"));
  return minted;
}

WallTime refresh_time(WallTime now, WallTime expires) {
  const auto life = expires - now;
  return expires - std::min<WallTime::duration>(kEarly, life / kPartOfLife);
}

SecretBytes encode_minted(const MintedWord& word) {
  const std::string head = static_cast<char>(word.kind) + word.secret + "\n" +
                           std::to_string(word.minted.expires ? to_ms(*word.minted.expires) : 0) +
                           "\n";
  const std::string_view value = word.minted.value.bytes();
  SecretBytes bytes;
  bytes.reserve(head.size() + value.size());
  bytes.insert(bytes.end(), head.begin(), head.end());
  bytes.insert(bytes.end(), value.begin(), value.end());
  return bytes;
}

Result<MintedWord> decode_minted(std::string_view bytes) {
  const auto refused = [] { return fail(Error::invalid("a minter's word that is none")); };
  if (bytes.empty()) return refused();
  MintedWord word{.kind = static_cast<MintedWord::Kind>(bytes.front())};
  if (word.kind != MintedWord::Kind::kValue && word.kind != MintedWord::Kind::kNone &&
      word.kind != MintedWord::Kind::kEnd)
    return refused();
  bytes.remove_prefix(1);
  const std::size_t name = bytes.find('\n');
  if (name == bytes.npos || name > kMostName) return refused();
  word.secret = bytes.substr(0, name);
  bytes.remove_prefix(name + 1);
  const std::size_t number = bytes.find('\n');
  if (number == bytes.npos) return refused();
  std::int64_t expires = 0;
  const auto read = std::from_chars(bytes.data(), bytes.data() + number, expires);
  if (read.ec != std::errc() || read.ptr != bytes.data() + number || expires < 0) return refused();
  // Beyond what the clock can say nothing ends.
  constexpr std::int64_t kMostMs = 9'000'000'000'000;
  if (expires != 0) word.minted.expires = WallTime(milliseconds(std::min(expires, kMostMs)));
  bytes.remove_prefix(number + 1);
  const bool has_value = word.kind == MintedWord::Kind::kValue;
  if (has_value == bytes.empty() || bytes.size() > kMostValue) return refused();
  word.minted.value = SecretValue(bytes);
  return word;
}

}  // namespace caisson::egress
