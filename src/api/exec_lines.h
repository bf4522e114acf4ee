// What a command says and how it ends, as lines of JSON: the answer of POST /v1/sandboxes/ID/exec
// and of GET /v1/sandboxes/ID/commands/NUMBER/output.
//
//   {"started":{"pid":7}}
//   {"stdout":"42\n"}            {"stderr":"/w==","encoding":"base64"}
//   {"missed":5000}              so many bytes came faster than they were read, and are lost
//   {"end":{"verdict":{"kind":"exited","code":0},"usage":{…},…}}
//   {"error":{"code":"not_found","message":"…"}}        in place of end: it never ran
//   {"goes_on":true}             in place of end: only what was kept was asked for
//
// The last line is an end, an error or a goes_on; an answer without any was cut off. Pure.
#pragma once

#include <array>
#include <string>

#include "fleet/box_client.h"

namespace caisson::api {

class ExecLines {
 public:
  // `image`: for the end's line.
  explicit ExecLines(std::string image) : image_(std::move(image)) {}

  // The lines of one message, each with its line break; often none. Error: a message that is not as
  // the protocol has it.
  Result<std::string> take(const fleet::BoxStream::Message& message);
  // After the last line.
  bool ended() const { return ended_; }

 private:
  std::string output(proto::Channel channel, std::string_view bytes);
  // What was held back of a channel, as a line.
  std::string flush(proto::Channel channel);
  std::string flush_all();
  Result<std::string> close(std::string_view payload);

  std::string image_;
  // The beginning of a character whose other bytes have not come yet; by channel.
  std::array<std::string, 3> partial_;
  bool started_ = false, ended_ = false;
};

}  // namespace caisson::api
