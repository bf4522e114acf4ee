// gzip (RFC 1952) as streams: pieces in, pieces out, nothing kept whole. zlib stands behind it and
// shows nowhere else. Pure, one thread an object.
//
// What a small body becomes is not bounded here, but no call gives more than kGzipPiece of it, so
// whoever passes the pieces on holds no more than one.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

namespace caisson::http {

inline constexpr std::size_t kGzipPiece = 64 * 1024;

// Uncompresses one gzip stream, or several in a row.
class Gunzip {
 public:
  Gunzip();
  ~Gunzip();
  Gunzip(const Gunzip&) = delete;
  Gunzip& operator=(const Gunzip&) = delete;

  // The next of what is compressed; only once next() has given nullopt.
  void feed(std::string bytes);
  // nullopt: feed() is wanted. Error (final): invalid_argument where it is not gzip or is damaged.
  Result<std::optional<std::string>> next();
  // Whether the input may end here. Error: it is cut off.
  Status finish() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Compresses, quickly rather than well.
class Gzip {
 public:
  Gzip();
  ~Gzip();
  Gzip(const Gzip&) = delete;
  Gzip& operator=(const Gzip&) = delete;

  // What `bytes` become; often nothing, since the compressor waits for more.
  std::string feed(std::string_view bytes);
  std::string finish();

 private:
  struct State;
  std::string deflate_all(std::string_view bytes, int flush);
  std::unique_ptr<State> state_;
};

// What an Accept-Encoding asks for.
enum class Coding : std::uint8_t { kIdentity, kGzip, kNone };
// kGzip only where the client takes gzip and names no other compression: clients whose library
// always names all of them did not ask for it, and compressing costs both sides more than it saves
// on a local network. kNone: neither gzip nor the plain bytes are acceptable.
Coding coding_for(std::optional<std::string_view> accept_encoding);

}  // namespace caisson::http
