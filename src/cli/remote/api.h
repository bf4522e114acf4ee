// A server's API under /v1 (docs/api.yaml), as caisson-remote calls it: one request after the other
// over a connection that is kept, and streams beside it over connections of their own.
//
// What a server says is checked for its form and bounded; its sentences are shown to the user.
// Belongs to the loop.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "cli/remote/address.h"
#include "http/client.h"
#include "io/loop.h"
#include "io/tls.h"

namespace caisson::cli {

class Api {
 public:
  struct Server {
    ServerAddress address;
    std::string key;
    std::shared_ptr<io::TlsTrust> trust;  // of kHttps
  };
  Api(io::Loop& loop, Server server) : loop_(loop), server_(std::move(server)) {}

  // One call with a JSON body, or none where it is null; its answer, null where it has no body.
  // Errors: the server's own by their status (not_found, invalid_argument, …) with its sentence;
  // unavailable (no connection, with the address), unauthenticated (key or certificate), data_loss
  // (an answer that is none of this API's).
  io::Async<Result<json::Value>> call(std::string method, std::string target, json::Value body);

  // A request whose body, and whose answer's, are the caller's to pass on; its head was sent.
  using Exchange = std::unique_ptr<http::ClientExchange>;
  io::Async<Result<Exchange>> open(std::string method, std::string target, http::Framing framing);
  // The answer's head. Error: as call(), where it is not a success.
  io::Async<Status> accept(http::ClientExchange& exchange);
  // When the answer has been read: the connection, for the next call.
  void keep(Exchange exchange);

  io::Loop& loop() { return loop_; }

 private:
  io::Async<Result<std::unique_ptr<io::Stream>>> connect();

  io::Loop& loop_;
  Server server_;
  std::unique_ptr<io::Stream> idle_;
  io::Clock::time_point idle_since_;
};

// The error of an answer with that status and body. Pure.
Error error_of_answer(int status, std::string_view body);

}  // namespace caisson::cli
