#include "api/create_sandbox.h"

#include <tuple>
#include <utility>

namespace caisson::api {

io::Async<Result<std::shared_ptr<fleet::Served>>> create_sandbox(Call& call,
                                                                 fleet::NewSandbox wanted) {
  // Only whom somebody watches is known to have gone.
  call.exchange.on_gone([] {});
  CO_TRY_ASSIGN(auto made, co_await call.backend.fleet.create(call.team, std::move(wanted)));
  if (!call.exchange.gone()) co_return made;
  std::ignore = co_await call.backend.fleet.kill(call.team, made->view().id);
  co_return fail(Error::unavailable("the client has gone"));
}

}  // namespace caisson::api
