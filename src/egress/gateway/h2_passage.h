// One request of a sandbox and its answer, from one HTTP/2 connection to another: what
// http::Passage is for HTTP/1.1, with what stands behind bodies (the status of gRPC is there).
//
// Both directions go on at once, each as fast as whoever takes it. Lives in the handler that runs
// it, and with its end the request is broken off where it is not whole.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "egress/gateway/h2_exchange.h"
#include "egress/gateway/h2_session.h"
#include "http/passage.h"

namespace caisson::egress {

struct H2PassageOptions {
  // Of these the head (in HTTP/1.1's words), the early body and the changes count.
  http::PassageOptions message;
  H2Session::Remember remember = H2Session::Remember::kMay;
  // Look at, and may change, what stands behind the request's body and the answer's. An error ends
  // both.
  using ChangeTrailers = std::function<Status(http::Headers&)>;
  ChangeTrailers on_trailers = nullptr, on_answer_trailers = nullptr;
};

class H2Passage {
 public:
  H2Passage(H2Exchange& exchange, H2Session& upstream, H2PassageOptions options);
  ~H2Passage();
  H2Passage(const H2Passage&) = delete;
  H2Passage& operator=(const H2Passage&) = delete;

  // As http::Passage::run().
  io::Async<Status> run();
  const std::optional<Error>& body_fault() const { return body_fault_; }
  int answer_status() const { return answer_status_; }
  // The server did nothing for the request, and it has no body that was taken from the client: it
  // may be sent again.
  bool may_repeat() const;

 private:
  io::Async<void> send();
  io::Async<Status> send_body();
  io::Async<void> receive(Status& result);
  io::Async<Status> receive_answer();
  io::Async<Status> pass_body();

  H2Exchange& exchange_;
  H2Session& session_;
  H2PassageOptions options_;
  std::shared_ptr<H2Stream> upstream_;
  const bool has_body_;
  int answer_status_ = 0;
  std::optional<Error> body_fault_;
};

}  // namespace caisson::egress
