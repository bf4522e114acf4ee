#include "api/e2b/envd.h"

#include <algorithm>
#include <utility>

#include "api/e2b/files.h"
#include "api/e2b/messages.h"
#include "api/e2b/methods.h"
#include "api/e2b/port_proxy.h"
#include "api/e2b/sandbox_info.h"
#include "base/secret.h"

namespace caisson::api::e2b {

namespace {

constexpr const char* kNotAllowed =
    "unauthorized access, please provide a valid access token or method signing if supported";

template <typename Method>
const Method* find_method(std::span<const Method> methods, std::string_view path) {
  const auto found = std::ranges::find(methods, path, &Method::path);
  return found == methods.end() ? nullptr : &*found;
}

io::Async<Status> answer_preflight(http::Exchange& exchange) {
  http::ResponseHead head;
  head.status = 204;
  head.headers = answer_headers();
  // "*" does not cover Authorization.
  const auto wanted = exchange.request().headers.get("Access-Control-Request-Headers");
  head.headers.add("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
      .add("Access-Control-Allow-Headers", wanted.value_or("*"))
      .add("Access-Control-Max-Age", "7200");
  co_return co_await exchange.respond(std::move(head), "");
}

bool may(const Request& request) {
  const std::string& token = request.sandbox->view().access_token;
  const auto shown = request.header("X-Access-Token");
  return token.empty() || (shown.has_value() && same_secret(*shown, token));
}

bool is_health(const Request& request) {
  const std::string& method = request.exchange.request().method;
  return request.exchange.target().path == "/health" && (method == "GET" || method == "HEAD");
}

// Whether the request shows what it needs to; answers it where not. Only asking for its health
// needs nothing.
io::Async<Result<Allowed>> check_access(const Request& request, std::uint16_t port) {
  if (port != kEnvdPort) co_return co_await check_traffic(request);
  if (is_health(request)) co_return Allowed::kYes;
  if (request.exchange.target().path == "/files") {
    const bool writes = request.exchange.request().method == "POST";
    co_return co_await check_claim(request, writes ? FileAccess::kWrite : FileAccess::kRead);
  }
  if (may(request)) co_return Allowed::kYes;
  CO_TRY(co_await answer_error(request.exchange, 401, kNotAllowed));
  co_return Allowed::kAnswered;
}

io::Async<Status> answer_unknown_encoding(const Request& request) {
  http::ResponseHead head;
  head.status = 415;
  head.headers = answer_headers("application/json");
  head.headers.add("Accept-Post",
                   "application/json, application/proto, application/connect+json, "
                   "application/connect+proto");
  co_return co_await request.exchange.respond(
      std::move(head), http::error_json(Error::invalid("Content-Type: it is none that is served")));
}

io::Async<Status> serve_unary(const Request& request, const UnaryMethod& method) {
  const auto encoding = encoding_of(request.header("Content-Type"), RpcKind::kUnary);
  if (!encoding.has_value()) co_return co_await answer_unknown_encoding(request);
  const auto message = co_await read_message(request, *encoding, method.request);
  if (!message.has_value()) co_return co_await answer_rpc_error(request, message.error());
  // What nobody waits for any more is given up, in the sandbox too.
  std::optional<Result<json::Value>> result;
  auto call = [](const Request& of, const UnaryMethod& to, const json::Value& with,
                 std::optional<Result<json::Value>>& into) -> io::Async<void> {
    auto done = co_await to.handler(of, with);
    into.emplace(std::move(done));
  };
  co_await while_client_stays(request, call(request, method, *message, result));
  if (!result.has_value()) co_return fail(Error::unavailable("the client has gone"));
  if (!result->has_value()) co_return co_await answer_rpc_error(request, result->error());
  co_return co_await answer_message(request, *encoding, method.response, **result);
}

// The handler of a stream, and how it ends.
io::Async<void> run_stream(const Request& request, const StreamMethod& method,
                           const json::Value& message, RpcAnswer& answer) {
  const Status status = co_await method.handler(request, message, answer);
  if (request.exchange.gone()) co_return;
  std::optional<Error> error;
  if (!status.has_value()) error = status.error();
  co_await answer.end(error);
}

io::Async<Status> serve_stream(const Request& request, const StreamMethod& method) {
  const auto encoding = encoding_of(request.header("Content-Type"), RpcKind::kStream);
  if (!encoding.has_value()) co_return co_await answer_unknown_encoding(request);
  RpcAnswer answer(request, *encoding, method.response);
  const auto message = co_await read_enveloped(request, *encoding, method.request);
  if (!message.has_value()) co_return co_await answer.end(message.error());
  co_await while_watched(request, run_stream(request, method, *message, answer));
  co_return Status();
}

io::Async<Status> serve_stream_input(const Request& request) {
  const auto encoding = encoding_of(request.header("Content-Type"), RpcKind::kStream);
  if (!encoding.has_value()) co_return co_await answer_unknown_encoding(request);
  RpcAnswer answer(request, *encoding, kEmpty);
  const Status status = co_await stream_input(request, *encoding);
  if (!status.has_value()) co_return co_await answer.end(status.error());
  CO_TRY(co_await answer.send(json::Value::object()));
  co_return co_await answer.end(std::nullopt);
}

io::Async<Status> serve_rpc(Request& request, std::string_view path) {
  const auto timeout = http::parse_timeout(request.header("Connect-Timeout-Ms"));
  if (!timeout.has_value()) co_return co_await answer_rpc_error(request, timeout.error());
  if (timeout->has_value()) request.deadline = io::Clock::now() + **timeout;
  for (const auto streams : {process_streams(), filesystem_streams()}) {
    if (const StreamMethod* method = find_method(streams, path))
      co_return co_await serve_stream(request, *method);
  }
  for (const auto methods : {process_methods(), filesystem_methods(), watcher_methods()}) {
    if (const UnaryMethod* method = find_method(methods, path))
      co_return co_await serve_unary(request, *method);
  }
  if (path == "/process.Process/StreamInput") co_return co_await serve_stream_input(request);
  co_return co_await answer_error(request.exchange, 404, "there is no such method");
}

io::Async<Status> serve_files(const Request& request, bool reads, bool writes) {
  if (reads) co_return co_await download_file(request);
  if (writes) co_return co_await upload_files(request);
  co_return co_await answer_error(request.exchange, 405, "/files: allowed are GET and POST");
}

io::Async<Status> serve_envd(fleet::Fleet& fleet, Request& request) {
  http::Exchange& exchange = request.exchange;
  const std::string& path = exchange.target().path;
  const std::string& method = exchange.request().method;
  const bool reads = method == "GET" || method == "HEAD", writes = method == "POST";
  if (is_health(request)) {
    http::ResponseHead head;
    head.status = 204;
    head.headers = answer_headers();
    head.headers.add("Cache-Control", "no-store");
    co_return co_await exchange.respond(std::move(head), "");
  }
  if (path == "/files") co_return co_await serve_files(request, reads, writes);
  if (path == "/metrics" && reads) co_return co_await answer_metrics(fleet, request);
  if (path == "/envs" && reads) co_return co_await answer_variables(request);
  if (path == "/files/compose" && writes) co_return co_await compose_file(request);
  if (path.starts_with("/process.Process/") || path.starts_with("/filesystem.Filesystem/")) {
    if (writes) co_return co_await serve_rpc(request, path);
    co_return co_await answer_error(exchange, 405, "methods are called by POST");
  }
  co_return co_await answer_error(exchange, 404, "there is no such path");
}

}  // namespace

io::Async<void> DataPlane::serve(http::Exchange& exchange, SandboxAddress address) {
  const bool is_envd = address.port == kEnvdPort;
  if (is_envd && exchange.request().method == "OPTIONS") {
    co_await answer_preflight(exchange);
    co_return;
  }
  std::shared_ptr<fleet::Served> sandbox = fleet_.find_any(address.id);
  if (sandbox == nullptr || sandbox->ended()) {
    co_await answer_no_sandbox(exchange, address.id);
    co_return;
  }
  Request request{.exchange = exchange, .sandbox = std::move(sandbox), .watchers = &watchers_};
  // Before a paused one is resumed: that is not for everybody to bring about.
  const auto allowed = co_await check_access(request, address.port);
  if (!allowed.has_value() || *allowed == Allowed::kAnswered) co_return;
  if (request.sandbox->view().state == fleet::State::kPaused) {
    const bool resumed = co_await fleet_.resume_for_traffic(request.sandbox);
    if (!resumed) {
      co_await answer_no_sandbox(exchange, address.id);
      co_return;
    }
  }
  if (is_envd) {
    co_await serve_envd(fleet_, request);
  } else {
    co_await serve_port(request, address.port);
  }
}

}  // namespace caisson::api::e2b
