#include "api/secret_body.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "base/secret.h"
#include "vault/secret_body.h"

namespace caisson::api {
namespace {

constexpr std::size_t kPiece = 16 * 1024;
// Pieces that do not fit the end of a page begin another one, so that half of it may be lost.
constexpr int kPipe = 2 * vault::kMostSecretBody;
// Fits a pipe as it is; large ones are counted against all of a user's.
constexpr std::uint64_t kSmall = 32 * 1024;

Error too_long() {
  return {Code::kOutOfRange,
          "the body is too long; allowed are " + std::to_string(vault::kMostSecretBody) + " bytes"};
}

Status put(int pipe_fd, std::string_view piece) {
  const ssize_t count = ::write(pipe_fd, piece.data(), piece.size());
  if (count == static_cast<ssize_t>(piece.size())) return {};
  if (count >= 0 || errno == EAGAIN)
    return fail(Error::unavailable("the server has no room for the body; try again"));
  return fail_errno("write of a body to its pipe");
}

}  // namespace

io::Async<Result<Fd>> forward_body(http::Exchange& exchange) {
  if (exchange.body_length().value_or(0) > vault::kMostSecretBody) co_return fail(too_long());
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) co_return fail_errno("pipe2");
  Fd out(ends[0]);
  const Fd in(ends[1]);
  // Where the user's pipes have taken all that they may it stays as small as it is.
  if (exchange.body_length().value_or(vault::kMostSecretBody) > kSmall)
    static_cast<void>(::fcntl(in.get(), F_SETPIPE_SZ, kPipe));
  std::size_t size = 0;
  for (;;) {
    auto piece = co_await exchange.read_some(kPiece);
    if (!piece.has_value()) co_return fail(std::move(piece).error());
    if (piece->empty()) co_return out;
    size += piece->size();
    const Status written = size > vault::kMostSecretBody ? fail(too_long()) : put(in.get(), *piece);
    wipe(*piece);
    if (!written.has_value()) co_return fail(written.error());
  }
}

}  // namespace caisson::api
