#include "base/guards.h"

#if defined(CAISSON_TEST_SWITCHES)

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace caisson {
namespace {

constexpr std::string_view kVariable = "CAISSON_GUARD_OFF=";

Guards named_by_environment() {
  const char* const entry = guard_variable();
  auto guards = parse_guards(entry == nullptr ? "" : entry + kVariable.size());
  if (guards.has_value()) return *guards;
  std::fprintf(stderr, "CAISSON_GUARD_OFF: %s\n", guards.error().message().c_str());
  std::abort();
}

}  // namespace

Result<Guards> parse_guards(std::string_view text) {
  Guards guards;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(','));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const auto found = std::ranges::find(kGuardNames, word);
    if (found == kGuardNames.end())
      return fail(Error::invalid("unknown guard \"" + std::string(word) +
                                 "\"; allowed are those of base/guards.h"));
    guards.set(static_cast<std::size_t>(found - kGuardNames.begin()));
  }
  return guards;
}

const char* guard_variable() {
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (std::string_view(*entry).starts_with(kVariable)) return *entry;
  }
  return nullptr;
}

bool guard_off(Guard guard) {
  static const Guards off = named_by_environment();
  return off.test(static_cast<std::size_t>(guard));
}

}  // namespace caisson

#endif
