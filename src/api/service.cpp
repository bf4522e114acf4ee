#include "api/service.h"

#include <algorithm>

#include "api/e2b/list.h"
#include "api/e2b/logs.h"
#include "api/e2b/nameless.h"
#include "api/e2b/not_here.h"
#include "api/e2b/sandboxes.h"
#include "api/e2b/secrets.h"
#include "api/e2b/snapshots.h"
#include "api/e2b/templates.h"
#include "api/v1/routes.h"

namespace caisson::api {
namespace {

constexpr std::string_view kPrometheus = "text/plain; version=0.0.4; charset=utf-8";

bool is_read(const http::Exchange& exchange) {
  return exchange.request().method == "GET" || exchange.request().method == "HEAD";
}

}  // namespace

Service::Service(Parts parts) : parts_(std::move(parts)) {
  for (const auto routes :
       {e2b::sandbox_routes(), e2b::list_routes(), e2b::log_routes(), e2b::template_routes(),
        e2b::template_build_routes(), e2b::template_tag_routes(), e2b::snapshot_routes(),
        e2b::secret_routes(), e2b::routes_not_here(), v1::sandbox_routes(), v1::command_routes(),
        v1::file_routes(), v1::fact_routes()}) {
    routes_.insert(routes_.end(), routes.begin(), routes.end());
  }
  for (const Route& route : routes_) router_.add(route.method, route.pattern);
}

io::Async<void> Service::handle(http::Exchange& exchange) {
  Address address = sandbox_address(exchange.request().headers, parts_.backend.domain);
  if (address.has_value() && !address->has_value()) {
    const auto served = e2b::find_by_secret(parts_.backend.fleet, exchange);
    if (served != nullptr) address->emplace(served->view().id, kEnvdPort);
  }
  co_await serve(exchange, std::move(address));
}

io::Async<void> Service::handle_port(http::Exchange& exchange) {
  http::Headers host;
  host.add("Host", std::string(exchange.request().headers.get("Host").value_or("")));
  Address address = sandbox_address(host, parts_.backend.domain);
  if (address.has_value() && !address->has_value()) {
    const Status ignored = co_await exchange.respond(
        {.status = 421}, "only ports of sandboxes are reached here, by PORT-ID.DOMAIN\n");
    co_return;
  }
  co_await serve(exchange, std::move(address));
}

io::Async<void> Service::serve(http::Exchange& exchange, Address address) {
  const io::Clock::time_point start = io::Clock::now();
  RecordedExchange recorded(exchange);
  Trace trace;
  if (!address.has_value()) {
    instruments_.begin(trace.plane);
    co_await send(recorded, error_answer(address.error(), exchange.id()));
  } else {
    if (address->has_value()) {
      trace.sandbox = (*address)->id;
      trace.port = (*address)->port;
      trace.plane = trace.port == kEnvdPort ? Plane::kSandbox : Plane::kPort;
    }
    instruments_.begin(trace.plane);
    if (address->has_value()) {
      co_await parts_.sandbox(recorded, std::move(**address));
    } else {
      co_await control(recorded, trace);
    }
  }
  const std::chrono::nanoseconds time = io::Clock::now() - start;
  instruments_.end(trace.plane, recorded.status(), time);
  log_request(recorded, trace, time);
}

io::Async<void> Service::control(http::Exchange& exchange, Trace& trace) {
  std::optional<Answer> own = own_answer(exchange);
  if (own.has_value()) {
    co_await send(exchange, std::move(*own));
    co_return;
  }
  Router::Match match = router_.match(exchange.request().method, exchange.target().segments);
  if (match.kind == Router::Match::Kind::kNoPath && exchange.target().path == "/files") {
    // A signed address that is no sandbox's; clients know these words.
    const bool is_signed = exchange.target().query_value("signature").has_value();
    co_await send(exchange, error_answer(401, is_signed ? "invalid signature"
                                                        : "missing signature query parameter"));
    co_return;
  }
  if (match.kind == Router::Match::Kind::kNoPath) {
    co_await send(exchange, error_answer(404, "there is nothing at this path"));
    co_return;
  }
  if (match.kind == Router::Match::Kind::kNoMethod) {
    Answer answer = error_answer(405, "this path allows " + match.allowed);
    answer.head.headers.add("Allow", match.allowed);
    co_await send(exchange, std::move(answer));
    co_return;
  }
  Result<Answer> answer = co_await call_route(exchange, std::move(match), trace);
  if (answer.has_value()) {
    co_await send(exchange, std::move(*answer));
    co_return;
  }
  if (is_our_fault(answer.error())) {
    parts_.log.write(io::Log::Level::kError, answer.error().message(),
                     {{"request", exchange.id()}});
  }
  // A stream that has begun can only be broken off.
  if (exchange.begun()) {
    exchange.abort();
    co_return;
  }
  Answer error = error_answer(answer.error(), exchange.id());
  if (error.head.status == 401) error.head.headers.add("WWW-Authenticate", "Bearer");
  co_await send(exchange, std::move(error));
}

io::Async<Result<Answer>> Service::call_route(http::Exchange& exchange, Router::Match match,
                                              Trace& trace) {
  const Route& route = routes_[match.route];
  if (route.right == Route::Right::kKey) {
    CO_TRY_ASSIGN(std::string key, api_key_of(exchange.request().headers));
    CO_TRY_ASSIGN(trace.team, co_await parts_.keys.team_of(std::move(key)));
  }
  Call call{exchange, parts_.backend, trace.team, std::move(match.parameters)};
  co_return co_await route.handler(call);
}

std::optional<Answer> Service::own_answer(const http::Exchange& exchange) const {
  const std::string& path = exchange.target().path;
  if (!is_read(exchange)) return std::nullopt;
  if (path == "/healthz" || path == "/health") return Answer::text(200, "text/plain", "ok\n");
  if (path == "/readyz") {
    if (state_ == State::kReady) return Answer::text(200, "text/plain", "ready\n");
    return Answer::text(503, "text/plain",
                        state_ == State::kStarting ? "starting\n" : "stopping\n");
  }
  if (path != "/metrics") return std::nullopt;
  return Answer::text(200, kPrometheus,
                      instruments_.text({parts_.server_counts(), parts_.backend.fleet.counts(),
                                         parts_.log.lost()}));
}

void Service::log_request(const RecordedExchange& exchange, const Trace& trace,
                          std::chrono::nanoseconds time) const {
  // Nobody reads that somebody asks every second whether all is well.
  const bool quiet =
      trace.plane == Plane::kControl && trace.team.empty() && exchange.status() / 100 == 2;
  const io::Log::Level level = quiet ? io::Log::Level::kDebug : io::Log::Level::kInfo;
  if (!parts_.log.writes(level)) return;
  // The path of a program inside a sandbox is its own business, and may hold its secrets.
  const std::string path = trace.plane == Plane::kPort ? "" : exchange.target().path;
  parts_.log.write(level, "request",
                   {{"request", exchange.id()},
                    {"peer", exchange.peer()},
                    {"plane", to_string(trace.plane)},
                    {"method", exchange.request().method},
                    {"path", path},
                    {"status", exchange.status()},
                    {"bytes", exchange.bytes()},
                    {"ms", std::chrono::duration<double, std::milli>(time).count()},
                    {"team", trace.team},
                    {"sandbox", trace.sandbox},
                    {"port", trace.port},
                    {"aborted", exchange.aborted()}});
}

}  // namespace caisson::api
