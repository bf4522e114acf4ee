// Answers of the APIs: JSON bodies, and errors as {"code":404,"message":"…"}.
//
// A handler returns an Answer or an Error; who called it sends either (send()). Clients tell
// failures apart by the number in the body, so every error has that form, whoever gives it.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "http/server.h"
#include "io/async.h"

namespace caisson::api {

struct Answer {
  http::ResponseHead head;
  std::string body;
  bool sent = false;  // the handler has answered by itself, in pieces

  static Answer json(int status, const json::Value& value);
  static Answer empty(int status);
  static Answer text(int status, std::string_view content_type, std::string body);
  static Answer already_sent();
};

// The status of a failure. kOutOfRange is a body that is too long (413): nothing else of a request
// that the APIs take has a range.
int http_status_of(Code code);

Answer error_answer(int status, std::string_view message);
// What is our own fault is not told in detail: the log has it under the request's number.
Answer error_answer(const Error& error, std::string_view request_id);
bool is_our_fault(const Error& error);

// Sends it, unless it is sent. What fails here is the connection, which the server looks after.
io::Async<void> send(http::Exchange& exchange, Answer answer);

}  // namespace caisson::api
