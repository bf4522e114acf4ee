#include "http/gzip.h"

#include <zlib.h>

#include <cctype>

namespace caisson::http {

namespace {

constexpr int kGzipOnly = 16;  // added to the window's bits
constexpr int kQuick = 1;

Bytef* input(std::string_view bytes) {
  // zlib does not write to it.
  return reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
}

}  // namespace

struct Gunzip::State {
  z_stream zlib = {};
  std::string pending;
  bool begun = false;  // a member has begun and is not whole
  bool seen = false;   // some member was whole
  bool broken = false;
};

Gunzip::Gunzip() : state_(std::make_unique<State>()) {
  VERIFY(::inflateInit2(&state_->zlib, MAX_WBITS + kGzipOnly) == Z_OK);
}

Gunzip::~Gunzip() {
  ::inflateEnd(&state_->zlib);
}

void Gunzip::feed(std::string bytes) {
  VERIFY(state_->zlib.avail_in == 0);
  state_->pending = std::move(bytes);
  state_->zlib.next_in = input(state_->pending);
  state_->zlib.avail_in = static_cast<uInt>(state_->pending.size());
}

Result<std::optional<std::string>> Gunzip::next() {
  z_stream& zlib = state_->zlib;
  std::string piece(kGzipPiece, '\0');
  zlib.next_out = input(piece);
  zlib.avail_out = static_cast<uInt>(piece.size());
  // Once more than there is input: zlib may hold back output that did not fit before.
  for (;;) {
    if (state_->broken) return fail(Error::invalid("the gzip stream is damaged, or is none"));
    if (zlib.avail_in > 0) state_->begun = true;
    const int result = ::inflate(&zlib, Z_NO_FLUSH);
    if (result == Z_STREAM_END) {
      state_->begun = false;
      state_->seen = true;
      ::inflateReset(&zlib);
      if (zlib.avail_in > 0 && zlib.avail_out > 0) continue;  // another member follows
    } else if (result != Z_OK && result != Z_BUF_ERROR) {
      state_->broken = true;
      continue;
    }
    break;
  }
  piece.resize(piece.size() - zlib.avail_out);
  if (!piece.empty() || zlib.avail_in > 0) return std::optional<std::string>(std::move(piece));
  return std::optional<std::string>();
}

Status Gunzip::finish() const {
  if (state_->begun || !state_->seen) return fail(Error::invalid("the gzip stream is cut off"));
  return {};
}

struct Gzip::State {
  z_stream zlib = {};
};

Gzip::Gzip() : state_(std::make_unique<State>()) {
  VERIFY(::deflateInit2(&state_->zlib, kQuick, Z_DEFLATED, MAX_WBITS + kGzipOnly, MAX_MEM_LEVEL - 1,
                        Z_DEFAULT_STRATEGY) == Z_OK);
}

Gzip::~Gzip() {
  ::deflateEnd(&state_->zlib);
}

std::string Gzip::feed(std::string_view bytes) {
  return deflate_all(bytes, Z_NO_FLUSH);
}

std::string Gzip::finish() {
  return deflate_all({}, Z_FINISH);
}

std::string Gzip::deflate_all(std::string_view bytes, int flush) {
  z_stream& zlib = state_->zlib;
  zlib.next_in = input(bytes);
  zlib.avail_in = static_cast<uInt>(bytes.size());
  std::string out;
  do {
    const std::size_t before = out.size();
    out.resize(before + kGzipPiece);
    zlib.next_out = input(std::string_view(out).substr(before));
    zlib.avail_out = kGzipPiece;
    ::deflate(&zlib, flush);
    out.resize(out.size() - zlib.avail_out);
  } while (zlib.avail_out == 0);
  return out;
}

Coding coding_for(std::optional<std::string_view> accept_encoding) {
  if (!accept_encoding) return Coding::kIdentity;
  std::optional<bool> gzip, identity, any;
  bool others = false;
  std::string_view rest = *accept_encoding;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    std::string item;
    for (const char c : rest.substr(0, comma)) {
      if (c != ' ' && c != '\t')
        item += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    const std::size_t semicolon = item.find(';');
    const std::string name = item.substr(0, semicolon);
    // "q=0", "q=0.0": not acceptable.
    const std::string quality = semicolon == std::string::npos ? "" : item.substr(semicolon + 1);
    const bool taken =
        !quality.starts_with("q=0") || quality.find_first_not_of("0.", 2) != std::string::npos;
    if (name.empty()) continue;
    if (name == "gzip" || name == "x-gzip") {
      gzip = taken;
    } else if (name == "identity") {
      identity = taken;
    } else if (name == "*") {
      any = taken;
    } else {
      others = others || taken;
    }
  }
  const bool takes_gzip = gzip.value_or(any.value_or(false));
  const bool takes_identity = identity.value_or(any.value_or(true));
  if (!takes_identity) return takes_gzip ? Coding::kGzip : Coding::kNone;
  return gzip.value_or(false) && !others ? Coding::kGzip : Coding::kIdentity;
}

}  // namespace caisson::http
