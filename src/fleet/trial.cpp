#include "fleet/trial.h"

#include <utility>

#include "io/race.h"

namespace caisson::fleet {
namespace {

constexpr std::chrono::seconds kRemovalTime{10};

}  // namespace

io::Async<Status> try_start(io::Loop& loop, Pool::Make make, Recipe recipe, StartOptions options,
                            io::Latch& stop) {
  auto job = [make = std::move(make), recipe] { return make(recipe); };
  CO_TRY_ASSIGN(const Made made, co_await loop.in_pool(std::move(job)));
  auto client = co_await BoxClient::connect(loop, made.socket);
  if (!client.has_value()) {
    auto end = [id = made.id] {
      end_sandbox(id);
      return true;
    };
    co_await loop.in_pool(std::move(end));
    co_return fail(std::move(client).error());
  }
  options.user = made.user;
  options.env = own_variables(made.id);
  Status done = fail(Error(Code::kCancelled, "what was to be tried was cancelled"));
  auto start = [](io::Loop& on, BoxClient& with, StartCommand what, StartOptions how,
                  Status& into) -> io::Async<void> {
    into = co_await start_and_wait(on, with, std::move(what), std::move(how));
  };
  co_await io::race(start(loop, **client, std::move(recipe.start), std::move(options), done),
                    stop.wait());
  (*client)->shutdown();
  co_await (*client)->wait_gone_until(io::Clock::now() + kRemovalTime);
  co_return done;
}

}  // namespace caisson::fleet
