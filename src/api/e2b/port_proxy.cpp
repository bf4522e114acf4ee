#include "api/e2b/port_proxy.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include "base/secret.h"
#include "http/codec.h"
#include "io/race.h"

namespace caisson::api::e2b {

using fleet::BoxStream;
using proto::Tag;
using Kind = BoxStream::Message::Kind;

namespace {

constexpr std::string_view kTokenHeader = "e2b-traffic-access-token";
constexpr std::size_t kPiece = 64 * 1024;
constexpr std::size_t kMostHead = 64 * 1024;
constexpr std::size_t kMostHeaders = 128;
constexpr unsigned kMostInterim = 16;
// How long a program has to take a connection, and to say whether it changes the protocol.
constexpr std::chrono::seconds kConnectTime{30};
constexpr std::chrono::seconds kUpgradeTime{60};
constexpr auto kForEver = std::chrono::hours(24 * 365);

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

bool wants_upgrade(const http::RequestHead& head) {
  return http::has_word(head.headers, "Connection", "upgrade") && head.headers.has("Upgrade");
}

// A target without what names the host: the program inside is no proxy.
std::string origin_form(std::string_view target) {
  const std::size_t scheme = target.find("://");
  if (target.starts_with('/') || scheme == std::string_view::npos) return std::string(target);
  target.remove_prefix(scheme + 3);
  target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
  return target.starts_with('/') ? std::string(target) : "/" + std::string(target);
}

// One request and its answer over a connection to a port inside.
class Passage {
 public:
  Passage(const Request& request, std::uint16_t port, BoxStream& inside)
      : exchange_(request.exchange),
        inside_(inside),
        head_(forwarded_head(exchange_.request(), port, request.sandbox->view().mask_request_host,
                             {.peer = peer_, .secure = exchange_.secure()})),
        upgrades_(wants_upgrade(exchange_.request())) {}

  // Error: nothing sensible came from inside (deadline_exceeded: nothing in time), or from the
  // client; where the answer has begun it is cut off.
  io::Async<Status> run();
  // What is wrong with the client's body, if anything.
  const std::optional<Error>& body_fault() const { return body_fault_; }

 private:
  io::Async<void> send();
  io::Async<Status> send_body();
  io::Async<void> receive(Status& result);
  io::Async<Status> receive_answer();
  io::Async<Result<http::ParsedResponse>> receive_head();
  io::Async<Status> pass_body(http::BodyDecoder decoder);
  io::Async<Status> tunnel(http::ResponseHead head);
  io::Async<void> tunnel_out(io::Stream& client, std::string early);
  io::Async<Status> tunnel_in(io::Stream& client);
  // More of what comes from inside, behind what is there. False: it has ended.
  io::Async<Result<bool>> more(io::Clock::time_point until = io::Clock::time_point::max());

  http::Exchange& exchange_;
  BoxStream& inside_;
  std::string peer_ = exchange_.peer();
  http::RequestHead head_;
  bool upgrades_;
  std::string buffer_;  // from inside
  bool ended_ = false;
  std::optional<Error> body_fault_;
};

io::Async<Result<bool>> Passage::more(io::Clock::time_point until) {
  while (!ended_) {
    CO_TRY_ASSIGN(const std::optional<BoxStream::Message> message,
                  co_await inside_.next_until(until));
    if (!message.has_value())
      co_return fail(Error(Code::kDeadlineExceeded, "it did not answer in time"));
    if (message->kind == Kind::kData && !message->bytes.empty()) {
      buffer_ += message->bytes;
      co_return true;
    }
    ended_ = message->kind == Kind::kFinish || message->kind == Kind::kClose;
  }
  co_return false;
}

io::Async<Status> Passage::send_body() {
  const bool chunked = !exchange_.body_length().has_value();
  for (;;) {
    auto bytes = co_await exchange_.read_some(kPiece);
    if (!bytes.has_value()) {
      body_fault_ = bytes.error();
      co_return fail(std::move(bytes).error());
    }
    if (bytes->empty()) break;
    CO_TRY(co_await inside_.write(chunked ? http::chunk(*bytes) : std::move(*bytes)));
  }
  if (chunked) CO_TRY(co_await inside_.write(std::string(http::kLastChunk)));
  co_return Status();
}

// Ends only when there is nothing to wait for any more: the client broke off, or has left.
io::Async<void> Passage::send() {
  const Status sent = co_await send_body();
  // A program may answer before it has read all; what it does not take any more is its matter.
  const bool broken = !sent.has_value() && !inside_.closed();
  if (broken) co_return;
  if (!upgrades_) {
    co_await exchange_.wait_gone();
    if (exchange_.gone()) co_return;
  }
  co_await io::Loop::sleep(kForEver);
}

io::Async<Result<http::ParsedResponse>> Passage::receive_head() {
  // Who waits for another protocol gives up some time; a plain answer may take as long as it does.
  const auto until = upgrades_ ? io::Clock::now() + kUpgradeTime : io::Clock::time_point::max();
  unsigned interim = 0;
  http::HeadScanner scanner;
  for (;;) {
    const auto size = scanner.scan(buffer_, kMostHead);
    if (!size.has_value()) co_return fail(Error::invalid(size.error().sentence));
    if (!size->has_value()) {
      CO_TRY_ASSIGN(const bool came, co_await more(until));
      if (!came) co_return fail(Error::unavailable("it closed the connection before it answered"));
      continue;
    }
    auto parsed = http::parse_response_head(std::string_view(buffer_).substr(0, **size),
                                            head_.method, kMostHeaders);
    if (!parsed.has_value()) co_return fail(Error::invalid(parsed.error().sentence));
    buffer_.erase(0, **size);
    const int status = parsed->head.status;
    if (status >= 200 || status == 101) co_return std::move(*parsed);
    // An interim answer is meant for us.
    if (++interim > kMostInterim) {
      co_return fail(Error::invalid("more than " + std::to_string(kMostInterim) +
                                    " interim answers before the answer"));
    }
    scanner = {};
  }
}

io::Async<Status> Passage::pass_body(http::BodyDecoder decoder) {
  while (!decoder.done()) {
    std::string_view rest = buffer_;
    std::string body;  // many small chunks become one write
    while (!rest.empty() && !decoder.done()) {
      const auto piece = decoder.take(rest, kPiece);
      if (!piece.has_value()) co_return fail(Error::invalid(piece.error().sentence));
      body += *piece;
    }
    buffer_.clear();
    if (!body.empty()) CO_TRY(co_await exchange_.write(body));
    if (decoder.done()) break;
    CO_TRY_ASSIGN(const bool came, co_await more());
    if (!came && !decoder.end_of_input())
      co_return fail(Error::unavailable("its answer is cut off"));
    if (!came) break;
  }
  co_return co_await exchange_.end();
}

io::Async<Status> Passage::receive_answer() {
  CO_TRY_ASSIGN(http::ParsedResponse answer, co_await receive_head());
  if (answer.head.status == 101) {
    if (!upgrades_) co_return fail(Error::invalid("it changes the protocol unasked"));
    co_return co_await tunnel(std::move(answer.head));
  }
  http::remove_hop_by_hop(answer.head.headers);
  answer.head.headers.remove("Transfer-Encoding");
  CO_TRY(co_await exchange_.begin(std::move(answer.head)));
  co_return co_await pass_body(http::BodyDecoder(answer.body));
}

io::Async<void> Passage::tunnel_out(io::Stream& client, std::string early) {
  std::string bytes = std::move(early);
  for (;;) {
    if (!bytes.empty()) {
      const Status written = co_await inside_.write(std::move(bytes));
      if (!written.has_value()) co_return;
    }
    bytes.assign(kPiece, '\0');
    const auto count = co_await client.read(bytes);
    if (!count.has_value()) co_return;
    if (*count == 0) break;
    bytes.resize(*count);
  }
  // The other direction may go on.
  inside_.finish();
  co_await io::Loop::sleep(kForEver);
}

io::Async<Status> Passage::tunnel_in(io::Stream& client) {
  for (;;) {
    if (!buffer_.empty()) {
      const std::string bytes = std::exchange(buffer_, {});
      CO_TRY(co_await client.write(bytes));
    }
    CO_TRY_ASSIGN(const bool came, co_await more());
    if (!came) co_return Status();
  }
}

io::Async<Status> Passage::tunnel(http::ResponseHead head) {
  CO_TRY_ASSIGN(http::Exchange::Upgraded upgraded, co_await exchange_.upgrade(std::move(head)));
  auto receive = [](Passage& self, io::Stream& client) -> io::Async<void> {
    co_await self.tunnel_in(client);
  };
  co_await io::race(tunnel_out(*upgraded.stream, std::move(upgraded.early)),
                    receive(*this, *upgraded.stream));
  co_return Status();
}

io::Async<void> Passage::receive(Status& result) {
  result = co_await receive_answer();
}

io::Async<Status> Passage::run() {
  CO_TRY_ASSIGN(std::string bytes, http::encode(head_));
  CO_TRY(co_await inside_.write(std::move(bytes)));
  Status result = fail(Error(Code::kCancelled, "the client has gone"));
  co_await io::race(send(), receive(result));
  co_return result;
}

}  // namespace

http::RequestHead forwarded_head(const http::RequestHead& head, std::uint16_t port,
                                 std::string_view mask_host, ForwardedFrom from) {
  http::RequestHead forwarded;
  forwarded.method = head.method;
  forwarded.target = origin_form(head.target);
  forwarded.headers = head.headers;
  http::Headers& headers = forwarded.headers;
  const bool upgrades = wants_upgrade(head);
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
  Passage passage(request, port, **inside);
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
