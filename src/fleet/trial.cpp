#include "fleet/trial.h"

#include <utility>

#include "io/race.h"

namespace caisson::fleet {
namespace {

constexpr std::chrono::seconds kRemovalTime{10};

}  // namespace

io::Async<Status> try_start(io::Loop& loop, Host& host, Recipe recipe, StartCommand what,
                            StartOptions options, io::Latch& stop) {
  auto job = [&host, recipe = std::move(recipe)] { return host.make(recipe); };
  CO_TRY_ASSIGN(const Made made, co_await loop.in_pool(std::move(job)));
  // Where it cannot be reached it ends by itself: nobody has claimed it.
  CO_TRY_ASSIGN(const std::unique_ptr<BoxClient> client, co_await reach(loop, host, made.id));
  options.user = made.user;
  options.env = own_variables(made.id);
  Status done = fail(Error(Code::kCancelled, "what was to be tried was cancelled"));
  auto start = [](io::Loop& on, BoxClient& with, StartCommand command, StartOptions how,
                  Status& into) -> io::Async<void> {
    into = co_await start_and_wait(on, with, std::move(command), std::move(how));
  };
  co_await io::race(start(loop, *client, std::move(what), std::move(options), done), stop.wait());
  client->shutdown();
  co_await client->wait_gone_until(io::Clock::now() + kRemovalTime);
  co_return done;
}

}  // namespace caisson::fleet
