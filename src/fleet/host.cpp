#include "fleet/host.h"

#include <utility>

namespace caisson::fleet {
namespace {

constexpr std::chrono::seconds kEndTime{10};

}  // namespace

io::Async<Result<std::unique_ptr<BoxClient>>> reach(io::Loop& loop, Host& host, std::string id) {
  auto connect = [&host, id = std::move(id)] { return host.connect(id); };
  CO_TRY_ASSIGN(Fd socket, co_await loop.in_pool(std::move(connect)));
  CO_TRY_ASSIGN(auto stream, io::adopt(loop, std::move(socket)));
  co_return co_await BoxClient::connect(loop, std::move(stream));
}

io::Async<void> end_sandbox(io::Loop& loop, Host& host, std::string id) {
  auto client = co_await reach(loop, host, std::move(id));
  if (!client.has_value()) co_return;
  (*client)->shutdown();
  co_await (*client)->wait_gone_until(io::Clock::now() + kEndTime);
}

}  // namespace caisson::fleet
