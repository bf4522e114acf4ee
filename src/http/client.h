// The client side of HTTP/1.1 over a stream that stands already: one request, one answer.
//
// For the command line's requests to a server: what answers may be anybody, so it is read by the
// same strict codec as a client's requests, within bounds. Belongs to the loop.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "http/codec.h"
#include "http/server.h"
#include "io/stream.h"

namespace caisson::http {

// The request may be sent by one coroutine while another reads the answer. The stream ends with
// it.
class ClientExchange {
 public:
  explicit ClientExchange(std::unique_ptr<io::Stream> stream);

  // `body`: none, a length or chunked; the framing's headers follow from it. Error: a head that
  // cannot be written; unavailable.
  io::Async<Status> send(RequestHead head, Framing body);
  // Of the body; its length is the caller's to keep. end() also of none.
  io::Async<Status> write(std::string_view bytes);
  io::Async<Status> end();

  // The answer's head; interim answers (1xx) are passed over, but for 101. Error: malformed
  // (invalid_argument), unavailable.
  io::Async<Result<ResponseHead>> read_head();
  // The next piece of its body; empty: it has ended. Error: malformed, or broken off.
  io::Async<Result<std::string>> read_some(std::size_t most);

  // Once the whole answer has been read, where the server keeps the connection: it, for another
  // exchange. Else null.
  std::unique_ptr<io::Stream> release();

  io::Stream& stream() { return *stream_; }

 private:
  // False: the peer has ended.
  io::Async<Result<bool>> fill();

  std::unique_ptr<io::Stream> stream_;
  std::string method_;
  Framing sending_;
  bool sent_ = true;  // the request is whole
  bool stays_ = false;
  std::string buffer_;
  BodyDecoder decoder_;
};

}  // namespace caisson::http
