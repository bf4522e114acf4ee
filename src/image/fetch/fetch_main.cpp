// caisson-image-fetch: fetches from registries for the process that started it; see
// image/registry/fetch_protocol.h. Not for people.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <vector>

#include "base/sys.h"
#include "image/fetch/confine.h"
#include "image/fetch/transfers.h"
#include "image/registry/fetch_protocol.h"

namespace caisson::image {
namespace {

// Waits where the caller is slow. A caller that is gone ends this process.
void say(const std::string& message) {
  if (!sys::send_message(kFetchSocketFd, message, {}).has_value()) _exit(0);
}

// Nothing is left to do for a caller that does not make sense or is gone.
void take_message(Transfers& transfers) {
  auto message = sys::recv_message(kFetchSocketFd, kMaxFetchMessage);
  if (!message.has_value() || message->bytes.empty()) _exit(message.has_value() ? 0 : 1);
  auto request = decode_request(message->bytes);
  if (!request.has_value()) _exit(1);
  if (request->url.empty()) return transfers.cancel(request->id);
  if (message->descriptors.size() != 1) _exit(1);
  Fd output = std::move(message->descriptors[0]);
  if (fcntl(output.get(), F_SETFL, O_NONBLOCK) != 0) _exit(1);
  transfers.start(*request, std::move(output));
}

Status serve() {
  TRY(end_with_parent());
  TRY_ASSIGN(FetchEnvironment environment, FetchEnvironment::read());
  std::vector<std::string> readable;
  if (!environment.certificate_directory.empty()) {
    readable.push_back(environment.certificate_directory);
  }
  TRY_ASSIGN(Transfers transfers, Transfers::create(std::move(environment), say));
  TRY(confine_fetcher(readable));
  say(FetchResult{.id = 0, .end = FetchEnd::kDone, .text = ""}.encode());
  for (;;) {
    TRY_ASSIGN(const bool spoken, transfers.step(kFetchSocketFd));
    if (spoken) take_message(transfers);
  }
}

}  // namespace
}  // namespace caisson::image

int main() {
  using namespace caisson::image;
  signal(SIGPIPE, SIG_IGN);
  const caisson::Status served = serve();
  // Told with the number of no request.
  say(FetchResult{.id = 0, .end = FetchEnd::kOther, .text = served.error().message()}.encode());
  return 1;
}
