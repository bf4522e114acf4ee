#include "io/relay.h"

#include <utility>

#include "io/race.h"

namespace caisson::io {
namespace {

constexpr std::size_t kRoom = 16 * 1024;

// Until `from` ends, which is passed on; a break ends both.
Async<void> pass_on(Stream& from, std::string early, Stream& to) {
  std::string piece = std::move(early);
  for (;;) {
    Status written;
    if (!piece.empty()) written = co_await to.write(piece);
    piece.resize(kRoom);
    Result<std::size_t> count = 0;
    if (written.has_value()) count = co_await from.read(piece);
    if (!written.has_value() || !count.has_value()) {
      from.close();
      to.close();
      co_return;
    }
    if (*count == 0) break;
    piece.resize(*count);
  }
  co_await to.finish();
}

}  // namespace

Async<void> relay(Stream& one, std::string early_of_one, Stream& other,
                  std::string early_of_other) {
  co_await both(pass_on(one, std::move(early_of_one), other),
                pass_on(other, std::move(early_of_other), one));
}

}  // namespace caisson::io
