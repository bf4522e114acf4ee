// One request and its answer passed on to somebody else: over a stream to a program in a sandbox,
// or from a sandbox to a server.
//
// What comes from either side is taken apart and put together anew, so that both see only messages
// of one meaning: the request's head is the caller's (made from Exchange::request()), the answer is
// read by the strict codec. After an answer 101 that the request asked for the connection is both
// sides' own. Belongs to the loop; lives in the handler that runs it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "http/codec.h"
#include "http/server.h"

namespace caisson::http {

// Whether a request asks for another protocol.
bool wants_upgrade(const RequestHead& head);

struct PassageOptions {
  // The header that frames the body (Content-Length, or Transfer-Encoding: chunked) is in `head`.
  RequestHead head;
  // How long whoever wants another protocol is waited for. A plain answer may take as long as it
  // does.
  std::chrono::milliseconds upgrade_time = std::chrono::seconds(60);
  // kEnds: a client that ends its side has gone, and the passage with it. kStays: it may still wait
  // for the answer; that nobody does shows when it is written.
  enum class HalfClosed : std::uint8_t { kEnds, kStays } half_closed = HalfClosed::kEnds;
  // What of the body was read before; it is sent first. kAll: that is the whole body.
  std::string early_body = {};
  enum class Read : std::uint8_t { kPart, kAll } early_read = Read::kPart;
  // Changes the answer's head before it goes on, when what is meant for one connection has been
  // removed from it. An error ends both.
  std::function<Status(ResponseHead&)> on_answer = nullptr;
  // Is given each piece of the request's body that is read here, and of the answer's, and at last
  // an empty one; gives what goes on instead, perhaps nothing yet, and in all as many bytes as
  // came. An error ends both.
  using ChangeBody = std::function<Result<std::string>(std::string piece)>;
  ChangeBody change_body = nullptr, change_answer_body = nullptr;
};

class Passage {
 public:
  // `upstream` is connected; it is used up by this, unless upstream_is_free() says otherwise.
  Passage(Exchange& exchange, io::Stream& upstream, PassageOptions options);

  // Error: nothing sensible came from upstream (deadline_exceeded: nothing in time), or from the
  // client; where the answer has begun it is not whole, and the caller aborts it.
  io::Async<Status> run();
  // What is wrong with the client's body, if anything.
  const std::optional<Error>& body_fault() const { return body_fault_; }
  // 0: none has begun.
  int answer_status() const { return answer_status_; }
  // Whether anything came from upstream.
  bool heard() const { return heard_; }
  // After run(), without an error: whether the connection may have another request, since both
  // messages ended before it did, nothing is behind the answer, and whoever answered means so.
  bool upstream_is_free() const { return free_; }

 private:
  io::Async<void> send();
  io::Async<Status> send_body();
  io::Async<Result<std::string>> next_piece();
  io::Async<void> receive(Status& result);
  io::Async<Status> receive_answer();
  io::Async<Result<ParsedResponse>> receive_head();
  io::Async<Status> pass_body(BodyDecoder decoder);
  io::Async<Status> tunnel(ResponseHead head);
  io::Async<void> tunnel_out(io::Stream& client, std::string early);
  io::Async<Status> tunnel_in(io::Stream& client);
  // More of what comes from upstream, behind what is there. False: it has ended.
  io::Async<Result<bool>> more();

  Exchange& exchange_;
  io::Stream& upstream_;
  PassageOptions options_;
  const bool upgrades_;
  std::string buffer_;  // from upstream
  bool ended_ = false;
  int answer_status_ = 0;
  bool heard_ = false, sent_ = false, extra_ = false, free_ = false;
  std::optional<Error> body_fault_;
};

}  // namespace caisson::http
