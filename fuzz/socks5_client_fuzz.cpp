// libraries: egress policy base
// parser: src/egress/socks5_client.cpp
//
// What a SOCKS5 proxy says. The first byte chooses whom it is asked for and with what; the rest is
// the proxy's.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"
#include "egress/socks5_client.h"

namespace {

using namespace caisson;          // NOLINT: a program of one file
using namespace caisson::egress;  // NOLINT

constexpr std::string_view kHosts[] = {"a.test", "192.0.2.1", "[2001:db8::1]"};
constexpr std::size_t kMostSteps = 5;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const bool login = (data[0] & 4) != 0;
  Socks5Client client(policy::canonical_host(kHosts[data[0] % 3]).value(), 443,
                      login ? std::string("user") : "", "password");
  std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::size_t steps = 0;
  while (client.wanted() > 0) {
    VERIFY(client.wanted() <= Socks5Client::kMostWanted);
    VERIFY(++steps <= kMostSteps);
    // A password is never sent to who did not ask for it.
    const bool shown = client.to_send().find("password") != std::string_view::npos;
    VERIFY(!shown || (login && steps == 2));
    client.sent();
    VERIFY(client.to_send().empty());
    const std::string_view taken = rest.substr(0, client.wanted());
    rest.remove_prefix(taken.size());
    const Status status = client.take(taken);
    if (!status.has_value()) {
      VERIFY(!status.error().message().empty());
      return 0;
    }
  }
  return 0;
}
