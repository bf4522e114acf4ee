#include "api/e2b/files.h"

#include <cerrno>
#include <chrono>

#include "api/e2b/rpc.h"

namespace caisson::api::e2b {

using proto::FileOperation;
using proto::Tag;

namespace {

constexpr std::size_t kMaxComposeBody = 1u << 20;
constexpr std::size_t kMaxSources = 512;

}  // namespace

io::Async<Result<Allowed>> check_claim(const Request& request, FileAccess access) {
  const http::Target& target = request.exchange.target();
  const FileClaim claim = {.token_header = request.header("X-Access-Token"),
                           .signature = target.query_value("signature"),
                           .expires = target.query_value("signature_expiration"),
                           .path = target.query_value("path").value_or(""),
                           .user = target.query_value("username").value_or("")};
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(fleet::WallClock::now().time_since_epoch());
  const Status status =
      check_file_claim(claim, access, request.sandbox->view().access_token, now.count());
  if (status.has_value()) co_return Allowed::kYes;
  const int code = status.error().code() == Code::kUnauthenticated ? 401 : 400;
  CO_TRY(co_await answer_error(request.exchange, code, status.error().message()));
  co_return Allowed::kAnswered;
}

io::Async<Result<Account>> file_account(const Request& request) {
  const auto name = request.exchange.target().query_value("username");
  if (name.has_value() && !name->empty()) co_return co_await look_up(request, std::string(*name));
  // A signature vouches for what it covers; headers are whoever's who has the URL.
  const bool is_signed = !request.sandbox->view().access_token.empty() &&
                         !request.header("X-Access-Token").has_value();
  if (is_signed) co_return co_await look_up(request, request.sandbox->default_user());
  co_return co_await account_of(request);
}

io::Async<Status> answer_file_error(const Request& request, const Error& error,
                                    std::string_view path) {
  const int number = error.error_number();
  if (number == ENOSPC || number == EDQUOT) {
    co_return co_await answer_error(request.exchange, 507, "not enough disk space available");
  }
  if (error.code() == Code::kNotFound && number != ENOTDIR) {
    const std::string text = "path '" + std::string(path) + "' does not exist";
    co_return co_await answer_error(request.exchange, 404, text);
  }
  int status = 500;
  switch (error.code()) {
    case Code::kNotFound:  // a file stands where a directory is needed
    case Code::kInvalidArgument:
    case Code::kFailedPrecondition:
    case Code::kAlreadyExists:
      status = 400;
      break;
    case Code::kUnauthenticated:
      status = 401;
      break;
    case Code::kPermissionDenied:
      status = 403;
      break;
    case Code::kOutOfRange:
      status = 413;
      break;
    case Code::kResourceExhausted:
      status = 429;
      break;
    case Code::kUnavailable:
      status = 502;
      break;
    default:
      break;
  }
  co_return co_await answer_error(request.exchange, status, error.message());
}

namespace {

struct Composition {
  Account account;
  std::string destination;
  proto::Fields fields;
};

io::Async<Result<Composition>> composition_of(const Request& request, const json::Value& body) {
  Composition composition;
  const json::Value* username = body.find("username");
  const std::string* name = username != nullptr ? username->as_string() : nullptr;
  if (name != nullptr && !name->empty()) {
    CO_TRY_ASSIGN(composition.account, co_await look_up(request, *name));
  } else {
    CO_TRY_ASSIGN(composition.account, co_await account_of(request));
  }
  const json::Value* destination = body.find("destination");
  const json::Value* sources = body.find("source_paths");
  const json::Value::Array* all = sources != nullptr ? sources->as_array() : nullptr;
  if (destination == nullptr || destination->as_string() == nullptr ||
      destination->as_string()->empty())
    co_return fail(Error::invalid("destination: a path is wanted"));
  if (all == nullptr || all->empty() || all->size() > kMaxSources) {
    co_return fail(
        Error::invalid("source_paths: 1 to " + std::to_string(kMaxSources) + " paths are wanted"));
  }
  CO_TRY_ASSIGN(composition.destination,
                path_for(request, composition.account, *destination->as_string()));
  composition.fields = file_fields(FileOperation::kCompose, composition.destination);
  for (const json::Value& source : *all) {
    if (source.as_string() == nullptr || source.as_string()->empty())
      co_return fail(Error::invalid("source_paths: each is a path"));
    CO_TRY_ASSIGN(const std::string path,
                  path_for(request, composition.account, *source.as_string()));
    composition.fields.put(Tag::kSource, path);
  }
  composition.fields.put_u8(Tag::kRecursive, 1);
  put_owner(composition.fields, composition.account);
  co_return composition;
}

}  // namespace

io::Async<Status> compose_file(const Request& request) {
  auto body = co_await request.exchange.read_all(kMaxComposeBody);
  if (!body.has_value()) co_return co_await answer_file_error(request, body.error(), "");
  const auto message = json::parse(*body);
  if (!message.has_value() || message->as_object() == nullptr)
    co_return co_await answer_error(request.exchange, 400, "the body is no JSON object");
  auto composition = co_await composition_of(request, *message);
  if (!composition.has_value())
    co_return co_await answer_file_error(request, composition.error(), "");
  Status done = fail(Error::unavailable("the client has gone"));
  auto compose = [](const Request& of, Composition& with, Status& into) -> io::Async<void> {
    const auto answer = co_await call_guest(of, proto::Kind::kFile, std::move(with.fields));
    into = answer.has_value() ? Status() : fail(answer.error());
  };
  co_await while_client_stays(request, compose(request, *composition, done));
  if (!done.has_value()) {
    // The guest's own words name the source that is missing.
    if (done.error().code() == Code::kNotFound)
      co_return co_await answer_error(request.exchange, 404, done.error().message());
    co_return co_await answer_file_error(request, done.error(), composition->destination);
  }
  co_return co_await answer_json(request.exchange, 200, written_file(composition->destination, {}));
}

}  // namespace caisson::api::e2b
