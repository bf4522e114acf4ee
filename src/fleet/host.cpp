#include "fleet/host.h"

#include <utility>

namespace caisson::fleet {
namespace {

constexpr std::chrono::seconds kEndTime{10};

io::Async<Result<std::unique_ptr<BoxClient>>> greet(io::Loop& loop, Result<Fd> socket) {
  if (!socket.has_value()) co_return fail(std::move(socket).error());
  CO_TRY_ASSIGN(auto stream, io::adopt(loop, std::move(*socket)));
  co_return co_await BoxClient::connect(loop, std::move(stream));
}

}  // namespace

io::Async<Result<std::unique_ptr<BoxClient>>> reach(io::Loop& loop, Host& host, std::string id) {
  auto connect = [&host, id = std::move(id)] { return host.connect(id); };
  auto socket = co_await loop.in_pool(std::move(connect));
  co_return co_await greet(loop, std::move(socket));
}

io::Async<Result<Reached>> make_and_reach(io::Loop& loop, Host& host, Recipe recipe,
                                          std::shared_ptr<const Fd> keys) {
  auto job = [&host, recipe = std::move(recipe),
              keys = std::move(keys)]() -> Result<std::pair<Made, Result<Fd>>> {
    TRY_ASSIGN(Made made, host.make(recipe, keys == nullptr ? -1 : keys->get()));
    auto socket = host.connect(made.id);
    return std::pair(std::move(made), std::move(socket));
  };
  CO_TRY_ASSIGN(auto done, co_await loop.in_pool(std::move(job)));
  auto client = co_await greet(loop, std::move(done.second));
  if (!client.has_value()) {
    co_await end_sandbox(loop, host, done.first.id);
    co_return fail(std::move(client).error());
  }
  co_return Reached{.made = std::move(done.first), .client = std::move(*client)};
}

io::Async<void> end_sandbox(io::Loop& loop, Host& host, std::string id) {
  auto client = co_await reach(loop, host, std::move(id));
  if (!client.has_value()) co_return;
  (*client)->shutdown();
  co_await (*client)->wait_gone_until(io::Clock::now() + kEndTime);
}

}  // namespace caisson::fleet
