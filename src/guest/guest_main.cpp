// caisson-guest: PID 1 inside a sandbox. See guest.h, and docs/formats/guest-protocol.md.

#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "guest/guest.h"

namespace {

using caisson::Error;
using caisson::fail;
using caisson::Fd;
using caisson::Result;
using caisson::Status;
using caisson::guest::Guest;
using caisson::guest::GuestOptions;

Result<Fd> parse_descriptor(std::string_view option, std::string_view value) {
  int fd = -1;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), fd);
  if (error != std::errc() || end != value.data() + value.size() || fd < 3)
    return fail(Error::invalid(std::string(option) + std::string(value) +
                               ": allowed is the number of an open descriptor from 3 on"));
  return Fd(fd);
}

// The value of "--name=value" when `argument` is that option.
std::optional<std::string_view> value_of(std::string_view argument, std::string_view option) {
  if (!argument.starts_with(option)) return std::nullopt;
  return argument.substr(option.size());
}

Result<GuestOptions> parse(int count, char** arguments) {
  GuestOptions options;
  for (int i = 1; i < count; ++i) {
    const std::string_view argument = arguments[i];
    struct {
      std::string_view name;
      Fd& target;
    } const descriptors[] = {{"--channel=", options.channel_in},
                             {"--channel-in=", options.channel_in},
                             {"--channel-out=", options.channel_out},
                             {"--userns=", options.inside.userns},
                             {"--cgroupns=", options.inside.cgroup_ns}};
    bool known = false;
    for (const auto& [name, target] : descriptors) {
      const std::optional<std::string_view> value = value_of(argument, name);
      if (!value) continue;
      if (target.valid()) return fail(Error::invalid(std::string(argument) + ": given twice"));
      TRY_ASSIGN(target, parse_descriptor(name, *value));
      known = true;
    }
#if defined(CAISSON_TEST_SWITCHES)
    if (const auto value = value_of(argument, "--switches=")) {
      TRY_ASSIGN(options.inside.disabled_mechanisms, caisson::parse_switches(*value));
      known = true;
    }
#endif
    if (!known)
      return fail(Error::invalid(std::string(argument) +
                                 ": allowed are --channel=N, or --channel-in=N with "
                                 "--channel-out=N, --userns=N and --cgroupns=N"));
  }
  if (!options.channel_in.valid())
    return fail(Error::invalid("--channel=N or --channel-in=N is missing"));
  return options;
}

Status run(int count, char** arguments) {
  TRY_ASSIGN(GuestOptions options, parse(count, arguments));
  TRY_ASSIGN(const std::unique_ptr<Guest> guest, Guest::create(std::move(options)));
  return guest->run();
}

}  // namespace

int main(int count, char** arguments) {
  const Status status = run(count, arguments);
  if (status) return 0;
  const std::string line = "caisson-guest: " + status.error().message() + "\n";
  [[maybe_unused]] const ssize_t written = ::write(2, line.data(), line.size());
  return 1;
}
