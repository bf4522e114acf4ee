#include "api/e2b/port_proxy.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "base/secret.h"
#include "http/codec.h"
#include "http/passage.h"

namespace caisson::api::e2b {

using fleet::BoxStream;
using proto::Tag;
using Kind = BoxStream::Message::Kind;

namespace {

constexpr std::string_view kTokenHeader = "e2b-traffic-access-token";
// How long a program has to take a connection.
constexpr std::chrono::seconds kConnectTime{30};

io::Async<Status> answer_port_error(const Request& request, int status, std::string_view message,
                                    std::optional<std::uint16_t> port) {
  json::Value body = json::Value::object();
  body.set("sandboxId", request.sandbox->view().id).set("message", message);
  if (port.has_value()) body.set("port", *port);
  body.set("code", status);
  co_return co_await answer_json(request.exchange, status, body);
}

// What is wrong with the traffic token, if anything.
std::optional<std::string> token_fault(const Request& request) {
  const fleet::SandboxView& view = request.sandbox->view();
  if (view.public_traffic) return std::nullopt;
  const std::string secured = "Sandbox is secured with traffic access token. ";
  const auto shown = request.header(kTokenHeader);
  if (!shown.has_value() || shown->empty())
    return secured + "Token header '" + std::string(kTokenHeader) + "' is missing";
  if (view.traffic_token.empty() || !same_secret(*shown, view.traffic_token))
    return secured + "Provided token in header '" + std::string(kTokenHeader) + "' is invalid";
  return std::nullopt;
}

// A target without what names the host: the program inside is no proxy.
std::string origin_form(std::string_view target) {
  const std::size_t scheme = target.find("://");
  if (target.starts_with('/') || scheme == std::string_view::npos) return std::string(target);
  target.remove_prefix(scheme + 3);
  target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
  return target.starts_with('/') ? std::string(target) : "/" + std::string(target);
}

// A connection to a port inside as a stream of bytes.
class InsideStream final : public io::Stream {
 public:
  explicit InsideStream(BoxStream& inside) : inside_(inside) {}

  io::Async<Result<std::size_t>> read(std::span<char> into) override {
    while (bytes_.empty() && !ended_) {
      const auto until = timeout_ > io::Clock::duration::zero() ? io::Clock::now() + timeout_
                                                                : io::Clock::time_point::max();
      CO_TRY_ASSIGN(std::optional<BoxStream::Message> message, co_await inside_.next_until(until));
      if (!message.has_value()) co_return fail(Error(Code::kDeadlineExceeded, "nothing came"));
      if (message->kind == Kind::kData) bytes_ = std::move(message->bytes);
      ended_ = message->kind == Kind::kFinish || message->kind == Kind::kClose;
    }
    const std::size_t count = bytes_.copy(into.data(), into.size());
    bytes_.erase(0, count);
    co_return count;
  }
  io::Async<Status> write(std::string_view bytes) override {
    co_return co_await inside_.write(std::string(bytes));
  }
  io::Async<void> finish() override {
    inside_.finish();
    co_return;
  }
  void close(Close /*how*/) override { ended_ = true; }
  void set_timeout(io::Clock::duration time) override { timeout_ = time; }
  std::string peer() const override { return {}; }

 private:
  BoxStream& inside_;
  std::string bytes_;  // that came and nobody has read yet
  bool ended_ = false;
  io::Clock::duration timeout_{};
};

}  // namespace

http::RequestHead forwarded_head(const http::RequestHead& head, std::uint16_t port,
                                 std::string_view mask_host, ForwardedFrom from) {
  http::RequestHead forwarded;
  forwarded.method = head.method;
  forwarded.target = origin_form(head.target);
  forwarded.headers = head.headers;
  http::Headers& headers = forwarded.headers;
  const bool upgrades = http::wants_upgrade(head);
  const bool chunked = headers.has("Transfer-Encoding");
  const std::string protocol(headers.get("Upgrade").value_or(""));
  const std::string host(headers.get("Host").value_or(""));
  http::remove_hop_by_hop(headers);
  headers.remove("Transfer-Encoding").remove("Expect").remove(kTokenHeader);
  if (chunked) headers.add("Transfer-Encoding", "chunked");
  if (upgrades) {
    headers.add("Connection", "Upgrade").add("Upgrade", protocol);
  } else {
    headers.add("Connection", "close");
  }
  if (!mask_host.empty()) {
    std::string masked(mask_host);
    constexpr std::string_view kPort = "${PORT}";
    if (const std::size_t at = masked.find(kPort); at != std::string::npos)
      masked.replace(at, kPort.size(), std::to_string(port));
    headers.set("Host", masked);
  } else if (host.empty()) {
    // HTTP/1.0 does without; what is passed on is HTTP/1.1.
    headers.set("Host", "localhost:" + std::to_string(port));
  }
  headers.remove("X-Forwarded-Host");
  if (!host.empty()) headers.add("X-Forwarded-Host", host);
  headers.set("X-Forwarded-Proto", from.secure ? "https" : "http");
  headers.set("X-Forwarded-For", from.peer.substr(0, from.peer.rfind(':')));
  return forwarded;
}

io::Async<Result<Allowed>> check_traffic(const Request& request) {
  const auto fault = token_fault(request);
  if (!fault.has_value()) co_return Allowed::kYes;
  CO_TRY(co_await answer_port_error(request, 403, *fault, std::nullopt));
  co_return Allowed::kAnswered;
}

io::Async<void> serve_port(const Request& request, std::uint16_t port) {
  if (request.exchange.request().method == "CONNECT") {
    co_await answer_port_error(request, 405, "CONNECT is not served; an upgrade is", port);
    co_return;
  }
  proto::Fields fields;
  fields.put_u32(Tag::kPort, port);
  auto inside = open_stream(request, proto::Kind::kDial, fields);
  if (!inside.has_value()) {
    const bool full = inside.error().code() == Code::kResourceExhausted;
    co_await answer_port_error(request, full ? 429 : 502,
                               full ? inside.error().message() : "The sandbox was not found",
                               std::nullopt);
    co_return;
  }
  const auto first = co_await (*inside)->next_until(io::Clock::now() + kConnectTime);
  if (first.has_value() && !first->has_value()) {
    co_await answer_port_error(request, 504, "The port did not take the connection in time", port);
    co_return;
  }
  if (!first.has_value() || (*first)->kind != Kind::kEvent) {
    co_await answer_port_error(request, 502, "The sandbox is running but port is not open", port);
    co_return;
  }
  InsideStream stream(**inside);
  const std::string peer = request.exchange.peer();
  const ForwardedFrom from{.peer = peer, .secure = request.exchange.secure()};
  http::PassageOptions options;
  options.head = forwarded_head(request.exchange.request(), port,
                                request.sandbox->view().mask_request_host, from);
  http::Passage passage(request.exchange, stream, std::move(options));
  const Status status = co_await passage.run();
  if (status.has_value() || request.exchange.gone()) co_return;
  if (request.exchange.begun()) {
    request.exchange.abort();
    co_return;
  }
  if (const auto& fault = passage.body_fault(); fault.has_value()) {
    co_await answer_port_error(request, 400, "The request's body: " + fault->message(), port);
    co_return;
  }
  const bool late = status.error().code() == Code::kDeadlineExceeded;
  const std::string text =
      "The program on this port did not answer in HTTP: " + status.error().message();
  co_await answer_port_error(request, late ? 504 : 502, text, port);
}

}  // namespace caisson::api::e2b
