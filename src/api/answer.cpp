#include "api/answer.h"

namespace caisson::api {

Answer Answer::json(int status, const json::Value& value) {
  return text(status, "application/json", json::serialize(value));
}

Answer Answer::empty(int status) {
  Answer answer;
  answer.head.status = status;
  return answer;
}

Answer Answer::text(int status, std::string_view content_type, std::string body) {
  Answer answer;
  answer.head.status = status;
  answer.head.headers.add("Content-Type", content_type);
  answer.body = std::move(body);
  return answer;
}

Answer Answer::already_sent() {
  Answer answer;
  answer.sent = true;
  return answer;
}

int http_status_of(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return 400;
    case Code::kUnauthenticated:
      return 401;
    case Code::kPermissionDenied:
      return 403;
    case Code::kNotFound:
      return 404;
    case Code::kAlreadyExists:
    case Code::kAborted:
    case Code::kFailedPrecondition:
      return 409;
    case Code::kOutOfRange:
      return 413;
    case Code::kResourceExhausted:
      return 429;
    case Code::kCancelled:
      return 499;
    case Code::kUnimplemented:
      return 501;
    case Code::kUnavailable:
      return 503;
    case Code::kDeadlineExceeded:
      return 504;
    case Code::kUnknown:
    case Code::kInternal:
    case Code::kDataLoss:
      return 500;
  }
  return 500;
}

Answer error_answer(int status, std::string_view message) {
  json::Value body = json::Value::object();
  body.set("code", status);
  body.set("message", message);
  return Answer::json(status, body);
}

bool is_our_fault(const Error& error) {
  // An errno is about our files and descriptors, never about what the client sent.
  return http_status_of(error.code()) == 500 || error.error_number() != 0;
}

Answer error_answer(const Error& error, std::string_view request_id) {
  if (!is_our_fault(error)) return error_answer(http_status_of(error.code()), error.message());
  return error_answer(
      500, "the server failed; its log has the reason under request " + std::string(request_id));
}

io::Async<void> send(http::Exchange& exchange, Answer answer) {
  if (answer.sent) co_return;
  [[maybe_unused]] const Status sent =
      co_await exchange.respond(std::move(answer.head), std::move(answer.body));
}

}  // namespace caisson::api
