#include "egress/gateway/look_up.h"

#include <poll.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "io/race.h"

namespace caisson::egress {
namespace {

Error no_answer(const std::string& name) {
  return Error(Code::kDeadlineExceeded, "no answer from the resolver for " + name);
}

// Blocks, for kResolveTime at most. `ask` is given the resolver and whom it is to tell.
template <typename Found, typename Ask>
Result<Found> ask_resolver(const std::string& name, const Ask& ask) {
  TRY_ASSIGN(Resolver resolver, Resolver::create());
  std::optional<Result<Found>> found;
  const auto until = io::Clock::now() + kResolveTime;
  ask(resolver, [&](Result<Found> result) {
    if (!found.has_value()) found = std::move(result);
  });
  while (!found.has_value()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - io::Clock::now());
    if (left.count() <= 0) return fail(no_answer(name));
    std::vector<pollfd> wanted = resolver.wanted();
    const int patience = resolver.timeout_ms();
    const int most = static_cast<int>(left.count());
    ::poll(wanted.data(), wanted.size(), patience < 0 ? most : std::min(patience, most));
    resolver.progress(wanted);
  }
  return std::move(*found);
}

template <typename Found, typename Work>
io::Async<void> in_pool_into(io::Loop& loop, Work work, std::optional<Result<Found>>& found) {
  found = co_await loop.in_pool(std::move(work));
}

template <typename Found, typename Work>
io::Async<Result<Found>> in_time(io::Loop& loop, std::string name, Work work) {
  std::optional<Result<Found>> found;
  // Also where others' look-ups have all threads.
  co_await io::race(in_pool_into<Found>(loop, std::move(work), found),
                    io::Loop::sleep(2 * kResolveTime));
  if (!found.has_value()) co_return fail(no_answer(name));
  co_return std::move(*found);
}

}  // namespace

io::Async<Result<ResolvedName>> look_up(io::Loop& loop, std::string name) {
  auto work = [name]() -> Result<ResolvedName> {
    auto found = ask_resolver<ResolvedName>(
        name, [&](Resolver& resolver, auto done) { resolver.resolve(name, std::move(done)); });
    if (found.has_value() && found->addresses.size() > kMostAddresses)
      found->addresses.resize(kMostAddresses);
    return found;
  };
  return in_time<ResolvedName>(loop, std::move(name), std::move(work));
}

io::Async<Result<std::vector<DnsService>>> look_up_services(io::Loop& loop, std::string name) {
  using Services = std::vector<DnsService>;
  auto work = [name]() -> Result<Services> {
    auto found = ask_resolver<Services>(
        name, [&](Resolver& resolver, auto done) { resolver.services(name, std::move(done)); });
    if (found.has_value() && found->size() > kMostServices) found->resize(kMostServices);
    return found;
  };
  return in_time<Services>(loop, std::move(name), std::move(work));
}

}  // namespace caisson::egress
